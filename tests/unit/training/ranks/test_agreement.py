"""What ranks agree on: one process alone, and two that do not."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from isogclr.distributed import Messages, Ranks
from isogclr.errors import TrainingError
from support.gloo import run_ranks
from training.ranks.agreement import check_versions, refuse_together


def said_by(function: Callable[..., None], *arguments: Any) -> str:
    try:
        function(*arguments)
    except TrainingError as error:
        return str(error)
    return ""


def on_each_rank() -> list[str]:
    """Several agreements one after another: a rank that left one out would hang, or read the next one's answer."""
    messages = Messages.of(Ranks())
    rank = messages.ranks.rank
    own = {"torch": "2.6", "numpy": "2.0" if rank else "1.26"}
    missing = {"torch": "2.6"} if rank else {"torch": "2.6", "numpy": "1.26"}
    return [
        said_by(refuse_together, messages, None),
        said_by(refuse_together, messages, "no disk" if rank else None),
        said_by(refuse_together, messages, f"rank {rank} has no disk"),
        said_by(refuse_together, messages, "no disk"),
        said_by(check_versions, messages, {"torch": "2.6"}),
        said_by(check_versions, messages, own),
        said_by(check_versions, messages, missing),
    ]


class TestOneProcess:
    def test_no_problem(self) -> None:
        refuse_together(Messages(Ranks()), None)

    def test_its_problem(self) -> None:
        with pytest.raises(TrainingError, match=r"^no disk$"):
            refuse_together(Messages(Ranks()), "no disk")

    def test_it_agrees_with_itself(self) -> None:
        check_versions(Messages(Ranks()), {"torch": "2.6"})


def test_two_ranks_raise_the_same_or_nothing() -> None:
    first, second = run_ranks(2, on_each_rank)
    assert first == second
    host = socket.gethostname()
    different = f"found other package versions than those of rank 0 on {host}: rank 1 on {host} has "
    expected = ["", "no disk", "rank 0 has no disk; rank 1 has no disk", "no disk", ""]
    assert first[:5] == expected
    assert first[5].startswith(f"{different}numpy 2.0 (not 1.26); expected the same everywhere")
    assert first[6].startswith(f"{different}numpy None (not 1.26); expected the same everywhere")
