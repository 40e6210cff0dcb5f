"""Bring the pages of a coming batch into memory while the model computes."""

from __future__ import annotations

import queue
import threading

import numpy as np
import numpy.typing as npt

from isogclr.state.schema import Rows

_BATCHES_AHEAD = 8


class Prefetcher:
    """A thread that reads one byte at each end of each row and forgets it.

    Values are never kept: they may change before the step reads them, pages do not. A request beyond the few that
    wait is dropped, since a hint must not cost anything.

    Args:
        data: all rows of the mapped file as bytes.
        row_bytes: size of a row.
    """

    def __init__(self, data: npt.NDArray[np.uint8], row_bytes: int) -> None:
        self._data = data
        self._row_bytes = row_bytes
        self._queue: queue.Queue[Rows | None] = queue.Queue(_BATCHES_AHEAD)
        self._thread = threading.Thread(target=self._run, name="isogclr-store-prefetch", daemon=True)
        self._thread.start()

    def request(self, rows: Rows) -> bool:
        """Ask for the pages of these rows; False if too many requests wait already."""
        try:
            self._queue.put_nowait(rows.copy())
        except queue.Full:
            return False
        return True

    def close(self) -> None:
        """Serve what was asked for, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (rows := self._queue.get()) is not None:
            first = np.sort(rows) * self._row_bytes
            np.take(self._data, first, mode="clip")
            np.take(self._data, first + (self._row_bytes - 1), mode="clip")
