"""Where ranks meet: what is refused, by whom, and how soon."""

from __future__ import annotations

import socket
import time

import pytest

from isogclr.errors import TrainingError
from training.ranks.rendezvous import check_rendezvous, speaks

MEETING = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}


def test_one_process_needs_no_address() -> None:
    check_rendezvous({})
    check_rendezvous({"SLURM_NTASKS": "1"})


def test_a_free_port_is_fine() -> None:
    check_rendezvous(MEETING)


def test_a_name_that_does_not_resolve_is_given_up_in_time() -> None:
    start = time.monotonic()
    with pytest.raises(TrainingError, match=r"no address for MASTER_ADDR=no\.such\.node\.invalid within 0\.3 s"):
        check_rendezvous({**MEETING, "MASTER_ADDR": "no.such.node.invalid", "ISOGCLR_NAME_WAIT": "0.3"})
    assert time.monotonic() - start < 20


def test_a_port_that_is_taken_is_refused_by_rank_0_alone() -> None:
    with socket.create_server(("", 0)) as listener:
        taken = {**MEETING, "MASTER_PORT": str(listener.getsockname()[1])}
        with pytest.raises(TrainingError, match="taken or not usable"):
            check_rendezvous(taken)
        check_rendezvous({**taken, "RANK": "1"})
        check_rendezvous(
            {**taken, "TORCHELASTIC_USE_AGENT_STORE": "True"}
        )  # torchrun's agent is the one who listens


@pytest.mark.parametrize("port", ["many", "99999"])
def test_something_that_is_no_port(port: str) -> None:
    with pytest.raises(TrainingError, match=f"MASTER_PORT={port}"):
        check_rendezvous({**MEETING, "MASTER_PORT": port})


def test_ranks_without_an_address() -> None:
    """`srun python -m training.main`, or a plain call inside of an allocation."""
    with pytest.raises(TrainingError, match="4 ranks but no MASTER_ADDR and no MASTER_PORT"):
        check_rendezvous({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"})


def test_the_first_rank_of_a_node_speaks() -> None:
    said = [speaks({"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % 2)}) for rank in range(4)]
    assert said == [True, False, True, False]
