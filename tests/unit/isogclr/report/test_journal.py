"""metrics.jsonl: replaced lines, lost work, damage, bounded memory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from isogclr.report import journal as module
from isogclr.report.journal import read_journal


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def train(step: int, loss: float) -> dict[str, object]:
    return {"kind": "train", "step": step, "epoch": step / 10, "loss": loss}


def test_a_later_line_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = write(tmp_path / "m", train(2, 2.0), train(1, 1.0), train(2, 3.0))
    epochs, values = read_journal(path).series("train", "loss")
    assert epochs.tolist() == [0.1, 0.2]
    assert values.tolist() == [1.0, 3.0]


def test_work_that_was_lost_is_forgotten(tmp_path: Path) -> None:
    start = {"kind": "start", "step": 1, "resumed_from": "generation-00000001"}
    path = write(tmp_path / "m", train(1, 1.0), train(2, 2.0), train(3, 3.0), start, train(2, 20.0))
    found = read_journal(path)
    assert found.series("train", "loss")[1].tolist() == [1.0, 20.0]
    assert found.starts == 1


def test_distributions_of_one_step_are_kept_apart(tmp_path: Path) -> None:
    lines = [{"kind": "distribution", "step": 5, "epoch": 1, "column": c} for c in ("image.x", "text.x")]
    assert len(read_journal(write(tmp_path / "m", *lines)).of("distribution")) == 2


def test_what_can_not_be_read_is_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "m", train(1, 1.0), [1], {"kind": "train"}, {"kind": 3, "step": 1}, "text")
    with path.open("ab") as file:
        file.write(b'{"kind": "train", "step": 2, "lo')
    found = read_journal(path)
    assert found.unreadable == 5
    assert found.last("train", "loss") == 1.0


def test_numbers_that_are_not_finite_leave_a_gap(tmp_path: Path) -> None:
    found = read_journal(write(tmp_path / "m", train(1, 1.0), train(2, math.nan), train(3, math.inf)))
    assert [math.isnan(value) for value in found.series("train", "loss")[1]] == [False, True, True]
    assert found.last("train", "loss") == 1.0


def test_a_long_journal_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_LINES", 64)
    found = read_journal(write(tmp_path / "m", *(train(step, step) for step in range(1000))))
    epochs, values = found.series("train", "loss")
    assert 16 <= len(values) <= 64
    assert found.stride > 1
    assert values[0] == 0
    assert values[-1] > 900
    assert (epochs * 10).round().tolist() == values.tolist()
