"""Updates that are known but perhaps not in the file yet, laid over what is read."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from isogclr.state.layout import BLOCK_ROWS
from isogclr.state.schema import Rows, Values

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
    """Updates in the order of their steps. Used by the one thread that reads and writes the store."""

    def __init__(self) -> None:
        self._updates: deque[Update] = deque()
        self.nbytes = 0

    def add(self, update: Update) -> None:
        self._updates.append(update)
        self.nbytes += update.nbytes

    def forget(self, applied: int) -> None:
        """Drop the updates of steps up to `applied`: the file has them."""
        while self._updates and self._updates[0].step <= applied:
            self.nbytes -= self._updates.popleft().nbytes

    def lay_over(self, rows: Rows, values: Values, applied: int) -> None:
        """Replace the values of rows with updates after step `applied`; later steps win."""
        for update in self._updates:
            if update.step > applied:
                update.lay_over(rows, values)
