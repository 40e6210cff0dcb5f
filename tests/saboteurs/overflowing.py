"""`training.main`, in which every second step has an infinite gradient."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from training import main as trainer


def main(argv: Sequence[str]) -> int:
    from training.steps.optimization import Optimization  # noqa: PLC0415

    original = Optimization.backward
    calls = 0

    def overflowing(self: Optimization, loss: Tensor) -> None:
        nonlocal calls
        calls += 1
        original(self, loss * float("inf") if calls % 2 == 0 else loss)

    Optimization.backward = overflowing  # type: ignore[method-assign]
    return trainer.main(argv)
