"""Which ranks share a node, by what their launcher says."""

from __future__ import annotations

import os
import socket
from dataclasses import astuple

import pytest

from isogclr.distributed import Messages, Ranks
from support.gloo import run_ranks
from training.ranks.node import Node, find_node, node_name

LAUNCHERS = ("SLURM_NODEID", "GROUP_RANK")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in LAUNCHERS:
        monkeypatch.delenv(variable, raising=False)


class TestName:
    def test_the_host(self) -> None:
        assert node_name() == socket.gethostname()

    @pytest.mark.parametrize("variable", LAUNCHERS)
    def test_the_launcher_knows_better(self, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(variable, "3")
        assert node_name() == f"{variable}=3"

    def test_slurm_knows_best(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """torchrun below srun counts the groups of one job step, Slurm the nodes."""
        monkeypatch.setenv("GROUP_RANK", "0")
        monkeypatch.setenv("SLURM_NODEID", "2")
        assert node_name() == "SLURM_NODEID=2"


def on_node(names: tuple[str, ...]) -> tuple[object, ...]:
    messages = Messages.of(Ranks())
    os.environ["SLURM_NODEID"] = names[messages.ranks.rank]
    return astuple(find_node(messages))


def test_one_process_is_its_node() -> None:
    assert find_node(Messages(Ranks())) == Node(number=0, count=1, first_rank=0, is_first_rank=True)


def test_nodes_are_counted_in_the_order_of_their_first_ranks() -> None:
    """Ranks dealt out in turn, and node 7 before node 5: neither must be taken for granted."""
    assert run_ranks(4, on_node, ("7", "5", "7", "5")) == [
        (0, 2, 0, True),
        (1, 2, 1, True),
        (0, 2, 0, False),
        (1, 2, 1, False),
    ]
