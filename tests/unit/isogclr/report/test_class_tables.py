"""What the table of classes shows of few, and of many."""

from __future__ import annotations

import numpy as np
import pytest

from isogclr.report.by_class import ByClass
from isogclr.report.class_figures import ClassRun
from isogclr.report.class_tables import ALL_CLASSES, COLUMNS, class_table
from isogclr.report.row_classes import Labels
from isogclr.report.scan import edges

COLUMN = "image_temperature"


def run(sizes: list[int]) -> ClassRun:
    """Class 0 is the hottest, the last the coldest."""
    classes = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    labels = Labels(classes, tuple(f"class {one}" for one in range(len(sizes))))
    values = np.zeros(len(classes), [(COLUMN, "f4")])
    values[COLUMN] = 0.9 - 0.8 * classes / max(1, len(sizes) - 1)
    found = ByClass.empty(labels, [COLUMN], edges(), (0.05, 1.0))
    found.add(classes, values)
    return ClassRun(0, "run", found, found.columns[COLUMN])


def test_few_classes_are_all_shown() -> None:
    table = class_table(run([40, 40, 40]))
    assert [(mark, cells[0], cells[1]) for mark, cells in table.lines] == [
        ("", "class 0", "40"),
        ("", "class 1", "40"),
        ("", "class 2", "40"),
    ]
    assert [float(cells[3]) for _, cells in table.lines] == pytest.approx([0.9, 0.5, 0.1], rel=0.012)
    assert [cells[4:] for _, cells in table.lines] == [("100 %", "0 %"), ("0 %", "0 %"), ("0 %", "100 %")]
    assert {len(cells) for _, cells in table.lines} == {len(COLUMNS)}


def test_a_long_tail_has_its_thirds() -> None:
    table = class_table(run([100, 60, 20, 10]))
    assert [(mark, cells[0], cells[1]) for mark, cells in table.lines[:3]] == [
        ("head", "the 2 largest", "160"),
        ("middle", "the 1 middle", "20"),
        ("tail", "the 1 smallest", "10"),
    ]
    assert table.lines[0][1][2].startswith(f"{(100 * 0.9 + 60 * (0.9 - 0.8 / 3)) / 160:.3f} ±")


def test_of_many_classes_the_extremes() -> None:
    table = class_table(run([3] * (ALL_CLASSES + 1)))
    assert [mark for mark, _ in table.lines] == ["hottest"] * 8 + ["coldest"] * 8
    assert table.lines[0][1][0] == "class 0"
    assert table.lines[-1][1][0] == f"class {ALL_CLASSES}"
    assert table.note.startswith(f"{ALL_CLASSES + 1} classes have visited pictures; the table shows the 8 hottest")


def test_a_class_without_pictures_is_not_shown() -> None:
    assert [cells[0] for _, cells in class_table(run([4, 0, 4])).lines] == ["class 0", "class 2"]
