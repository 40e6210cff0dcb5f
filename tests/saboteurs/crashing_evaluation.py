"""`training.main` whose evaluation fails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from training import main as trainer


def main(argv: Sequence[str]) -> int:
    from training.evaluation import PairEvaluation  # noqa: PLC0415

    def failing(*_: Any) -> dict[str, float]:
        raise MemoryError("no room for all pairs")

    PairEvaluation.run = failing  # type: ignore[method-assign]
    return trainer.main(argv)
