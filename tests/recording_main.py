"""`training.main`, with the rows of every step written down: one file a rank, one line a step."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training import main as trainer


def main(argv: Sequence[str]) -> int:
    """The folder of the records is in the environment."""
    from training.loop import Loop  # noqa: PLC0415

    record = Path(os.environ["RECORD_FOLDER"]) / f"rank-{os.environ.get('RANK', '0')}.jsonl"
    original = Loop._step

    def recording(self: Loop, batches: list[Any], schedule_step: float) -> Any:
        with record.open("a", encoding="utf-8") as file:
            rows = [row for batch in batches for row in batch.rows.tolist()]
            file.write(json.dumps(rows) + "\n")
        return original(self, batches, schedule_step)

    Loop._step = recording  # type: ignore[method-assign]
    return trainer.main(argv)


def recorded(folder: Path, ranks: int) -> list[list[list[int]]]:
    """Rows by rank, by step."""
    return [
        [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text(encoding="utf-8").splitlines()]
        for rank in range(ranks)
    ]
