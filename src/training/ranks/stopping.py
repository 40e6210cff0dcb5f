"""The moment at which all ranks stop: in front of a step, when some rank was asked to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from isogclr.distributed import Ranks
from training.signals import StopRequest, WaitInterrupted

T = TypeVar("T")


class StepGate:
    """Nobody enters a step before all ranks have their data, or some rank wants to stop: then nobody enters it.

    A rank inside a step waits for the others in collectives that nothing ends, so whoever is without data must be
    able to say so before. One small gather through main memory; a rank alone asks nobody.

    Args:
        ranks: of a group that moves CPU tensors (gloo).
        stop: whether somebody asked this process; interrupts its wait for data.
    """

    def __init__(self, ranks: Ranks, stop: StopRequest) -> None:
        self._ranks = ranks
        self._stop = stop
        self.is_asked_to_stop = False

    def enter_with(self, take: Callable[[], T]) -> T | None:
        """All ranks: what `take` has given, when all have something; None, on all of them, if some rank stops.

        Args:
            take: waits for data inside `stop.interrupts()`. What it had taken when somebody stops is dropped.
        """
        taken = None
        if not self._stop:
            try:
                taken = take()
            except WaitInterrupted:
                self._stop.end_wait()
        answers = self._ranks.gather_awake(torch.tensor([taken is None]))
        self.is_asked_to_stop = bool(answers.any())
        return None if self.is_asked_to_stop else taken
