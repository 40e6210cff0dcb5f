"""A trainer with the rows of every step written down: one file per rank, one line per step.

PROGRAM names its module, `training.main` if there is none.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def main(argv: Sequence[str]) -> int:
    """The folder of the records is in the environment, and how long a step takes at least in the first starts."""
    from training.steps.loop import Loop  # noqa: PLC0415

    folder = Path(os.environ["RECORD_FOLDER"])
    rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
    record = folder / f"rank-{rank}.jsonl"
    is_slow = int(os.environ.get("SLURM_RESTART_COUNT", "0")) < int(os.environ.get("SLOW_STARTS", "1"))
    seconds = float(os.environ.get("STEP_SECONDS", "0")) if is_slow else 0.0
    original = Loop._step
    if rank == "0":
        (folder / "arguments.json").write_text(json.dumps(list(argv)), encoding="utf-8")

    def recording(self: Loop, batches: list[Any], schedule_step: float) -> Any:
        with record.open("a", encoding="utf-8") as file:
            rows = [row for batch in batches for row in batch.rows.tolist()]
            file.write(json.dumps(rows) + "\n")
        time.sleep(seconds)
        return original(self, batches, schedule_step)

    Loop._step = recording  # type: ignore[method-assign]
    code: int = importlib.import_module(os.environ.get("PROGRAM", "training.main")).main(argv)
    return code


def recorded(folder: Path, ranks: int) -> list[list[list[int]]]:
    """Rows by rank, by step."""
    return [
        [json.loads(line) for line in (folder / f"rank-{rank}.jsonl").read_text(encoding="utf-8").splitlines()]
        for rank in range(ranks)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
