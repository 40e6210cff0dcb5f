"""Quantities that change over a run, as functions of the step. Plain floats: no device is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """The same value at every step."""

    value: float

    def __call__(self, step: float) -> float:
        return self.value


@dataclass(frozen=True)
class CosineDecay:
    """From `start` at step 0 along half a cosine to `end` at `decay_steps`, then constant.

    As the schedule of γ (from 1 to its final value over the first half of the epochs) it trusts the batch alone
    while the features still move fast, and the memory once they have settled.
    """

    start: float
    end: float
    decay_steps: int

    def __call__(self, step: float) -> float:
        fraction = min(max(step / self.decay_steps, 0.0), 1.0)
        return self.end + (self.start - self.end) * 0.5 * (1.0 + math.cos(math.pi * fraction))
