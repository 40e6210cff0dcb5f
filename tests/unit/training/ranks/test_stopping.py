"""The gate in front of a step."""

from __future__ import annotations

import signal
from typing import Any

import torch

from isogclr.distributed import Ranks
from training.ranks.stopping import StepGate
from training.signals import StopRequest, WaitInterrupted


class Answers(Ranks):
    """Ranks of which the others say this."""

    def __init__(self, *others: bool) -> None:
        super().__init__()
        self.others = torch.tensor(others, dtype=torch.bool)
        self.said: list[bool] = []

    def gather_awake(self, own: Any) -> Any:
        self.said.append(bool(own))
        return torch.cat([own, self.others])


def test_all_have_data() -> None:
    ranks = Answers(False, False)
    gate = StepGate(ranks, StopRequest())
    assert gate.enter_with(lambda: [1, 2]) == [1, 2]
    assert not gate.is_asked_to_stop
    assert ranks.said == [False]


def test_nothing_that_was_taken_is_given_out_when_another_rank_stops() -> None:
    gate = StepGate(Answers(False, True), StopRequest())
    assert gate.enter_with(lambda: [1, 2]) is None
    assert gate.is_asked_to_stop


def test_an_interrupted_wait_is_a_wish_to_stop() -> None:
    def interrupted() -> list[int]:
        raise WaitInterrupted

    ranks = Answers(False)
    gate = StepGate(ranks, StopRequest())
    assert gate.enter_with(interrupted) is None
    assert gate.is_asked_to_stop
    assert ranks.said == [True]


def test_who_was_asked_takes_nothing_more() -> None:
    stop, taken = StopRequest(), []
    stop.signal = signal.SIGTERM
    assert StepGate(Ranks(), stop).enter_with(lambda: taken.append(1) or 1) is None
    assert not taken
