"""Where a node keeps its live state: never on a file system that other machines may hold too."""

from __future__ import annotations

import hashlib
import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from isogclr.distributed import Messages
from isogclr.state.filesystem import network_file_system
from training.ranks.agreement import refuse_together
from training.ranks.node import Node


@dataclass(frozen=True)
class StateFolder:
    """The folder of the live file of this node.

    Args:
        path: the same for all ranks of the node.
        is_scratch: whether it was chosen outside of the run, and is to be left empty.
    """

    path: Path
    is_scratch: bool


def choose_state_folder(given: Path | None, run: Path, messages: Messages, node: Node) -> StateFolder:
    """The folder that was given, or the first of these that is local: the run, $SLURM_TMPDIR, $TMPDIR, /dev/shm.

    Each node looks for itself, and its first rank decides: launchers may give every task a TMPDIR of its own.

    Args:
        given: by `--isogclr-state-dir`.
        run: folder of the run, often on a shared file system.
    """
    candidates = [StateFolder(given, False)] if given is not None else list(_default_folders(run))
    chosen = next((one for one in candidates if network_file_system(one.path) is None), None)
    refuse_together(messages, None if chosen is not None or not node.is_first_rank else _refusal(candidates, node))
    decided = messages.gather(None if chosen is None else [str(chosen.path.absolute()), chosen.is_scratch])
    path, is_scratch = decided[node.first_rank]
    return StateFolder(Path(path), is_scratch)


def _default_folders(run: Path) -> Iterator[StateFolder]:
    yield StateFolder(run / "state", False)
    # The whole path of the run counts: two runs of the same name must not meet.
    name = f"{run.name[:100]}-{hashlib.blake2b(str(run.absolute()).encode(), digest_size=6).hexdigest()}"
    for place in (os.environ.get("SLURM_TMPDIR"), tempfile.gettempdir(), "/dev/shm"):
        if place and os.access(place, os.W_OK | os.X_OK):
            yield StateFolder(Path(place) / f"isogclr-{os.getuid()}" / name, True)


def _refusal(candidates: list[StateFolder], node: Node) -> str:
    found = ", ".join(f"{one.path} ({network_file_system(one.path)})" for one in candidates)
    return (
        f"node {node.number} ({socket.gethostname()}): found the state store on a network file system: {found}; "
        "expected a local disk or shared memory, which every node has for itself: give --isogclr-state-dir one, "
        "such as '$SLURM_TMPDIR' or /dev/shm/isogclr"
    )
