"""Tables of temperatures by class: all classes, or the extremes of many, and the thirds by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isogclr.evaluation.class_parts import class_parts
from isogclr.report.by_class import EXTREME_SHARE, ByClass, ClassColumn, Counts
from isogclr.report.class_figures import ClassRun
from isogclr.report.wording import number, share

ALL_CLASSES = 30  # of more, the table shows the extremes
_EXTREMES = 8
COLUMNS = (
    "Classes",
    "Pictures",
    "τ, mean ± sd",
    "τ, median",
    f"among the hottest {share(EXTREME_SHARE, 2)}",
    f"among the coldest {share(EXTREME_SHARE, 2)}",
)


@dataclass(frozen=True)
class ClassTable:
    """Of one run; lines are (mark, one cell per column). The mark says why a class is shown, if not all are."""

    run: str
    lines: list[tuple[str, tuple[str, ...]]]
    note: str


def class_table(run: ClassRun) -> ClassTable:
    """Thirds of the classes by size, if sizes differ, then the classes, the hottest first."""
    lines = [(part, _line(name, run, members)) for part, name, members in _thirds(run.classes)]
    order = _hottest_first(run.column, run.classes)
    if len(order) <= ALL_CLASSES:
        shown = [("", place) for place in order.tolist()]
    else:
        shown = [("hottest", place) for place in order[:_EXTREMES].tolist()]
        shown += [("coldest", place) for place in order[-_EXTREMES:].tolist()]
    lines += [(mark, _line(run.classes.names[place], run, [place])) for mark, place in shown]
    return ClassTable(run.label, lines, _note(run.classes, len(order)))


def _note(classes: ByClass, shown: int) -> str:
    text = f"{shown:,} classes have visited pictures"
    if shown > ALL_CLASSES:
        text += f"; the table shows the {_EXTREMES} hottest and the {_EXTREMES} coldest by their median"
    if classes.unlabelled:
        text += f"; {classes.unlabelled:,} pictures have no class"
    return f"{text}."


def _hottest_first(column: ClassColumn, classes: ByClass) -> Counts:
    present = classes.present
    medians = column.quantiles(0.5)[present]
    return present[np.argsort(-np.where(np.isnan(medians), -np.inf, medians), kind="stable")]


def _thirds(classes: ByClass) -> list[tuple[str, str, list[int]]]:
    """Mark, name and classes of head, middle and tail, by the rule of `isogclr linear`; nothing if balanced."""
    if classes.is_balanced:
        return []
    present = classes.present
    parts = class_parts(classes.sizes[present].tolist())
    names = {"head": "largest", "middle": "middle", "tail": "smallest"}
    return [
        (part, f"the {len(places):,} {names[part]}", present[list(places)].tolist())
        for part, places in parts.items()
    ]


def _line(name: str, run: ClassRun, members: Sequence[int]) -> tuple[str, ...]:
    column = run.column.together(members)
    groups = run.column.extremes()
    pictures = int(column.numbers[0])
    shares = (float("nan"),) * 2
    if groups is not None and pictures:
        shares = tuple(group[list(members)].sum() / pictures for group in groups)
    return (
        name,
        number(int(run.classes.sizes[list(members)].sum())),
        f"{number(float(column.means[0]))} ± {number(float(column.deviations[0]), 2)}",
        number(float(column.quantiles(0.5)[0])),
        *(share(one, 2) for one in shares),
    )
