"""metrics.jsonl: what a run wrote down while it trained.

One JSON object per line, append-only. A line replaces an earlier one of the same kind and step; a resumed run
begins with a `start` line, and whatever was written beyond that step belongs to work that was lost. The last line
may be cut off, since the run may still be writing it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Line = dict[str, Any]
Series = npt.NDArray[np.float64]
_KEPT_LINES = 8192  # of a training; of more, every second one goes, again and again


@dataclass
class Journal:
    """The lines of each kind, by (step, column), in the order of steps."""

    lines: dict[str, dict[tuple[int, str], Line]] = field(default_factory=dict)
    starts: int = 0
    unreadable: int = 0
    stride: int = 1  # of the training lines, one in so many was kept
    train_lines: int = 0
    last_time: float | None = None

    def of(self, kind: str) -> list[Line]:
        return [line for _, line in sorted(self.lines.get(kind, {}).items(), key=lambda item: item[0])]

    def names(self, kind: str) -> set[str]:
        """Every name that some line of a kind gives a number."""
        return {name for line in self.of(kind) for name, value in line.items() if _is_number(value)}

    def series(self, kind: str, name: str, over: str = "epoch") -> tuple[Series, Series]:
        """Where a number was written, and the number; values that are not finite leave a gap."""
        found = [line for line in self.of(kind) if _is_number(line.get(name)) and _is_number(line.get(over))]
        places = np.array([line[over] for line in found], np.float64)
        values = np.array([line[name] for line in found], np.float64)
        values[~np.isfinite(values)] = np.nan
        return places, values

    def last(self, kind: str, name: str) -> float | None:
        """The newest finite number of that name."""
        for line in reversed(self.of(kind)):
            if _is_number(line.get(name)) and math.isfinite(line[name]):
                return float(line[name])
        return None

    def add(self, line: Line) -> None:
        kind, step = line["kind"], line["step"]
        if _is_number(line.get("time")):
            self.last_time = float(line["time"])
        if kind == "start":
            self._forget_beyond(step)
            self.starts += 1
            return
        self._keep(kind, (step, str(line.get("column", ""))), line)

    def _forget_beyond(self, step: int) -> None:
        for kind, lines in self.lines.items():
            self.lines[kind] = {place: line for place, line in lines.items() if place[0] <= step}

    def _keep(self, kind: str, place: tuple[int, str], line: Line) -> None:
        lines = self.lines.setdefault(kind, {})
        if kind == "train":
            self.train_lines += 1
            if self.train_lines % self.stride and place not in lines:
                return
        lines[place] = line
        if kind == "train" and len(lines) > _KEPT_LINES:
            self.lines[kind] = dict(sorted(lines.items(), key=lambda item: item[0])[::2])
            self.stride *= 2


def read_journal(path: Path) -> Journal:
    """Everything that can be read of a journal; lines that can not are counted."""
    journal = Journal()
    with path.open("rb") as file:
        for raw in file:
            try:
                line = json.loads(raw)
                if not isinstance(line, dict) or not isinstance(line["kind"], str):
                    raise ValueError
                line["step"] = int(line["step"])
            except (ValueError, KeyError, TypeError, RecursionError):
                journal.unreadable += bool(raw.strip())
                continue
            journal.add(line)
    return journal


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
