"""One pass over a snapshot of the store: distributions, extremes, a random sample. Memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.report.by_class import ByClass
from isogclr.report.directions import sides_in, temperature_column
from isogclr.report.row_classes import Labels
from isogclr.state.schema import Values
from isogclr.state.snapshot import Snapshot

_LOWEST, _HIGHEST, _BINS = 1e-5, 1e3, 1600  # 200 bins per decade, whatever the bounds of the run
_VISITS_SHOWN = 4096
_ROWS_AT_A_TIME = 1 << 16
Rows = npt.NDArray[np.int64]
Intervals = tuple[Rows, Rows]  # first rows, ascending, and the rows after the last ones


class Extremes:
    """The rows with the largest (`sign` 1) or smallest (−1) values of a column, most extreme first."""

    def __init__(self, column: str, count: int, sign: int) -> None:
        self.column, self.count, self.sign = column, count, sign
        self.rows = np.zeros(0, np.int64)
        self.values: Values | None = None

    def add(self, rows: Rows, values: Values) -> None:
        finite = np.isfinite(values[self.column])
        rows, values = rows[finite], values[finite]
        if len(rows) > self.count:  # before sorting, so that a chunk costs one pass
            best = np.argpartition(-self.sign * values[self.column], self.count)[: self.count]
            rows, values = rows[best], values[best]
        rows = np.concatenate([self.rows, rows])
        values = values if self.values is None else np.concatenate([self.values, values])
        order = np.lexsort((rows, -self.sign * values[self.column]))[: self.count]
        self.rows, self.values = rows[order], values[order]


@dataclass
class Column:
    """All values of a column, as counts in fixed bins with sums."""

    lower: float | None
    upper: float | None
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    number: int = 0
    total: float = 0.0
    squares: float = 0.0
    at_lower: int = 0
    at_upper: int = 0
    not_finite: int = 0

    def add(self, values: npt.NDArray[np.float32]) -> None:
        finite = values[np.isfinite(values)].astype(np.float64)
        self.not_finite += len(values) - len(finite)
        self.number += len(finite)
        self.total += finite.sum()
        self.squares += (finite**2).sum()
        self.counts += np.histogram(np.clip(finite, _LOWEST, _HIGHEST), edges())[0]
        if self.lower is not None:
            self.at_lower += int((finite <= self.lower * (1 + 1e-6)).sum())
        if self.upper is not None:
            self.at_upper += int((finite >= self.upper * (1 - 1e-6)).sum())

    @property
    def mean(self) -> float:
        return self.total / max(1, self.number)

    @property
    def deviation(self) -> float:
        return float(np.sqrt(max(0.0, self.squares / max(1, self.number) - self.mean**2)))

    def quantile(self, share: float) -> float:
        """To the width of a bin, 1.2 %."""
        position = int(np.searchsorted(np.cumsum(self.counts), share * self.number))
        low, high = edges()[min(position, _BINS - 1) : min(position, _BINS - 1) + 2]
        return float(np.sqrt(low * high))


@dataclass
class Scan:
    """What is known of all samples of a run."""

    rows: int
    step: int | None
    fingerprint: str
    row_bytes: int
    columns: dict[str, Column]
    largest: dict[str, Extremes]
    smallest: dict[str, Extremes]
    visited: int = 0
    visits: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_VISITS_SHOWN + 1, np.int64))
    last_epochs: dict[int, int] = field(default_factory=dict)
    sample_rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    population: int = 0  # rows that the sample was drawn from
    states: dict[int, np.void] = field(default_factory=dict)  # of all rows that are remembered
    classes: ByClass | None = None  # if labels are known


def edges() -> npt.NDArray[np.float64]:
    return np.geomspace(_LOWEST, _HIGHEST, _BINS + 1)


def scan_store(
    path: Path,
    bounds: tuple[Any, Any],
    *,
    extremes: int,
    sample: int,
    within: Intervals | None = None,
    chosen: Sequence[int] = (),
    directions: Sequence[str] | None = None,
    labels: Labels | None = None,
    seed: int = 0,
) -> Scan:
    """Read every visited row once.

    Args:
        bounds: smallest and largest temperature of the run; None if unknown.
        extremes: how many rows to remember at each end of each temperature.
        sample: how many rows to draw at random.
        within: rows that may be drawn; None is all.
        chosen: rows to remember in any case.
        directions: whose temperatures to look at; None is all that the store has.
        labels: of the rows, for what is known class by class.
    """
    lower, upper = (float(bound) if isinstance(bound, (int, float)) else None for bound in bounds)
    with Snapshot(path) as snapshot:
        header = snapshot.header
        sides = sides_in(header.schema.state_columns) if directions is None else directions
        names = [temperature_column(side) for side in sides]
        scan = Scan(
            header.rows,
            header.step,
            header.index_fingerprint,
            header.schema.row_bytes,
            {name: Column(lower, upper) for name in names},
            {name: Extremes(name, extremes, +1) for name in names},
            {name: Extremes(name, extremes, -1) for name in names},
        )
        if labels is not None:
            scan.classes = ByClass.empty(labels, names, edges(), (lower, upper))
        drawn = _Drawing(sample, within, np.random.default_rng(seed))
        for rows, values in _visited(snapshot):
            _add(scan, rows, values)
            if labels is not None and scan.classes is not None:
                scan.classes.add(labels.of(rows), values)
            drawn.add(rows, values)
            wanted = np.isin(rows, chosen)
            _remember(scan, rows[wanted], values[wanted])
    scan.sample_rows, scan.population = drawn.rows, drawn.population
    _remember(scan, drawn.rows, drawn.values)
    for found in (*scan.largest.values(), *scan.smallest.values()):
        _remember(scan, found.rows, found.values)
    return scan


def _visited(snapshot: Snapshot) -> Iterator[tuple[Rows, Values]]:
    """Visited rows, few enough at a time that the arrays computed from them do not matter."""
    for first_row, values in snapshot.visited():
        for start in range(0, len(values), _ROWS_AT_A_TIME):
            part = values[start : start + _ROWS_AT_A_TIME]
            visited = np.flatnonzero(part["visits"])
            if len(visited):
                yield first_row + start + visited, part[visited]


def _remember(scan: Scan, rows: Rows, values: Values | None) -> None:
    if values is not None:
        scan.states.update(zip(rows.tolist(), values.copy(), strict=True))


def _add(scan: Scan, rows: Rows, values: Values) -> None:
    scan.visited += len(rows)
    scan.visits += np.bincount(np.minimum(values["visits"], _VISITS_SHOWN), minlength=_VISITS_SHOWN + 1)
    for epoch, count in zip(*np.unique(values["last_epoch"], return_counts=True), strict=True):
        scan.last_epochs[int(epoch) - 1] = scan.last_epochs.get(int(epoch) - 1, 0) + int(count)
    for name, column in scan.columns.items():
        column.add(values[name])
        scan.largest[name].add(rows, values)
        scan.smallest[name].add(rows, values)


class _Drawing:
    """A uniform sample without replacement of rows that come in chunks: those with the smallest random keys."""

    def __init__(self, count: int, within: Intervals | None, generator: np.random.Generator) -> None:
        self.count, self.within, self.generator = count, within, generator
        self.keys = np.zeros(0)
        self.rows = np.zeros(0, np.int64)
        self.values: Values | None = None
        self.population = 0

    def add(self, rows: Rows, values: Values) -> None:
        if self.within is not None:
            allowed = _inside(rows, self.within)
            rows, values = rows[allowed], values[allowed]
        self.population += len(rows)
        keys = self.generator.random(len(rows))
        if len(self.keys) == self.count and self.count:
            promising = keys < self.keys.max()
            keys, rows, values = keys[promising], rows[promising], values[promising]
        keys = np.concatenate([self.keys, keys])
        rows = np.concatenate([self.rows, rows])
        values = values if self.values is None else np.concatenate([self.values, values])
        order = np.sort(np.argsort(keys, kind="stable")[: self.count])  # ascending rows
        self.keys, self.rows, self.values = keys[order], rows[order], values[order].copy()


def _inside(rows: Rows, intervals: Intervals) -> npt.NDArray[np.bool_]:
    first, after = intervals
    place = np.searchsorted(first, rows, side="right") - 1
    return np.asarray((place >= 0) & (rows < after[np.maximum(place, 0)]))
