"""Updates that are known but perhaps not in the file yet, laid over what is read."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from isogclr.state.layout import BLOCK_ROWS
from isogclr.state.schema import Rows, Values

_MERGED = 16
_SLOTS_PER_ROW = 16  # of the filter: about one row in 16 is looked up in vain


class Update:
    """The new state of one step: rows ascending and distinct, each with the value of its first occurrence.

    Sorting here serves three: duplicates fall out, a read finds its rows by bisection, and the writer walks through
    the file in one direction. A bitmap over the low bits of the rows spares most reads the bisection.

    Args:
        step: when it happened.
        rows: in order of (rank, micro-batch, position); may repeat.
        values: one for each of `rows`; copied.
    """

    def __init__(self, step: int, rows: Rows, values: Values) -> None:
        self.step = step
        position_bits = len(rows).bit_length()
        packed = np.sort((rows << position_bits) | np.arange(len(rows)))  # by row, then by position
        sorted_rows = packed >> position_bits
        is_first = np.ones(len(rows), np.bool_)
        np.not_equal(sorted_rows[1:], sorted_rows[:-1], out=is_first[1:])
        self.rows: Rows = sorted_rows[is_first]
        self.values: Values = np.take(values, packed[is_first] & ((1 << position_bits) - 1))
        self.blocks: Rows = self.rows // BLOCK_ROWS
        self._mask = (1 << (_SLOTS_PER_ROW * len(rows) - 1).bit_length()) - 1
        self._filter: npt.NDArray[np.bool_] = np.zeros(self._mask + 1, np.bool_)
        self._filter[self.rows & self._mask] = True

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes + self.blocks.nbytes + self.values.nbytes + self._filter.nbytes

    def lay_over(self, rows: Rows, values: Values) -> None:
        """Replace the values of those `rows` that this update has."""
        candidates = np.flatnonzero(np.take(self._filter, rows & self._mask))
        if not len(candidates):
            return
        wanted = rows[candidates]
        found = np.searchsorted(self.rows, wanted)
        matches = np.take(self.rows, found, mode="clip") == wanted
        np.put(values, candidates[matches], np.take(self.values, found[matches]))


class PendingUpdates:
    """Updates in the order of their steps. Used by the one thread that reads and writes the store.

    Every update that waits is laid over every read, so when many wait, as with a slow disk, they are merged:
    sixteen neighbours become one, sixteen of those again. A merged one is forgotten when its last step is in the
    file; until then it may hold rows that the file has as well, with the same values.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self.nbytes = 0

    def add(self, update: Update) -> None:
        self._runs.append(_Run(update, 1, update.nbytes))
        self.nbytes += update.nbytes
        while len(self._runs) >= _MERGED and self._runs[-_MERGED].steps == self._runs[-1].steps:
            self._runs.append(_merge([self._runs.pop() for _ in range(_MERGED)]))

    def forget(self, applied: int) -> None:
        """Drop the updates of steps up to `applied`: the file has them."""
        while self._runs and self._runs[0].update.step <= applied:
            self.nbytes -= self._runs.popleft().nbytes

    def lay_over(self, rows: Rows, values: Values, applied: int) -> None:
        """Replace the values of rows with updates after step `applied`; later steps win."""
        for run in self._runs:
            if run.update.step > applied:
                run.update.lay_over(rows, values)


class _Run(NamedTuple):
    """Consecutive updates as one; `nbytes` is what they took apart, which the writer's queue still holds."""

    update: Update
    steps: int
    nbytes: int


def _merge(newest_first: list[_Run]) -> _Run:
    """Of a row that stands in several updates, the newest value: that of its first occurrence in this order."""
    update = Update(
        newest_first[0].update.step,
        np.concatenate([run.update.rows for run in newest_first]),
        np.concatenate([run.update.values for run in newest_first]),
    )
    return _Run(update, sum(run.steps for run in newest_first), sum(run.nbytes for run in newest_first))
