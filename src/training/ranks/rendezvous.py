"""Where ranks meet, looked at before they try: torch waits in silence for a name that does not resolve.

Imports nothing heavy.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
from collections.abc import Mapping

from isogclr.errors import TrainingError

NAME_SECONDS = 60.0  # a node that was booted for the job may come into the name service a little later


def world_size(environment: Mapping[str, str] = os.environ) -> int:
    """Ranks that the launcher has started, by the variables that open_clip looks at."""
    return int(next((environment[name] for name in ("WORLD_SIZE", "SLURM_NTASKS") if name in environment), "1"))


def check_rendezvous(environment: Mapping[str, str] = os.environ) -> None:
    """Refuse an address that does not resolve here, and on rank 0 a port that is taken."""
    if world_size(environment) == 1:
        return
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise TrainingError(
            f"found {world_size(environment)} ranks but no {' and no '.join(missing)}, expected the address of "
            "rank 0: submit a file of scripts/slurm, use torchrun, or unset SLURM_NTASKS for one process"
        )
    address, port = environment["MASTER_ADDR"], environment["MASTER_PORT"]
    _resolve(address, float(environment.get("ISOGCLR_NAME_WAIT", NAME_SECONDS)))
    # With torchrun the port is its agent's, which listens already.
    if (
        _number(environment, "RANK", "SLURM_PROCID") == 0
        and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    ):
        _check_port(port)


def speaks(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this rank says what is wrong with the rendezvous: the first one of a node, for its node."""
    return 0 in (_number(environment, "LOCAL_RANK", "SLURM_LOCALID"), _number(environment, "RANK", "SLURM_PROCID"))


def _number(environment: Mapping[str, str], *names: str) -> int:
    return int(next((environment[name] for name in names if name in environment), "0"))


def _resolve(address: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.getaddrinfo(address, None)
        except OSError as error:
            if time.monotonic() < deadline:
                time.sleep(min(1.0, seconds / 10))
                continue
            raise TrainingError(
                f"{socket.gethostname()}: found no address for MASTER_ADDR={address} within {seconds:g} s "
                f"({error}), expected the name of rank 0's node: let nodes resolve each other's names, or set "
                "MASTER_ADDR to an address that they can reach"
            ) from None
        return


def _check_port(port: str) -> None:
    with contextlib.closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch does
        try:
            listener.bind(("", int(port)))
        except (OSError, OverflowError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            raise TrainingError(
                f"{socket.gethostname()}: found MASTER_PORT={port} taken or not usable ({error}), expected a free "
                "port on the node of rank 0: another job may use it; set MASTER_PORT to another one"
            ) from None
