"""Two numbers that the writer process shares with the other ranks of its node, in the second page of the live file.

`begun` is the last step whose rows the writer may have started to write, `applied` the last one whose rows are all
written; both are stored plus one, so zero means none. They are aligned 8-byte words, which every 64-bit machine
loads and stores whole.

Why no rank reads a value that is torn or older than the last step it knows. A reader loads `applied` (call it A),
copies the rows, loads `begun` (B), and lays its own copies of the updates of all steps after A over the result.
Take a row, and s the last step known to the reader that updated it.

* s > A: the overlay holds the row, so what the copy saw does not matter, torn or not.
* s <= A: all writes up to s ended before A was published, hence before the copy began. A write that ran during the
  copy belongs to a step t with A < t <= B. If B is a step that the reader knows, then t is known and s was not the
  last step of this row: a contradiction, so nobody wrote the row during the copy. If the reader does not know B (it
  has not submitted that step yet), the copy may be torn: the reader throws it away and copies again.

So only B > max(A, newest step known) repeats the copy. In the order of the trainer (submit step T, then read for
T + 1, then take part in the exchange of T + 1) that can not happen, since the writer learns T + 1 from an exchange
that the reader joins after its read. It is there for reads at other times.

The argument needs the stores of the rows to be visible before that of `applied`, and the copy to lie between the
two loads. x86 keeps such orders by itself. On other machines the mutex that is taken and given back at each of
these points is the barrier.
"""

from __future__ import annotations

import mmap
import threading

import numpy as np

from isogclr.state.layout import PAGE_BYTES

NONE = -1  # no step


class Published:
    """The shared page of a mapped live file.

    Args:
        mapping: of the whole file; writable in the writer process only.
    """

    def __init__(self, mapping: mmap.mmap) -> None:
        self._words = np.frombuffer(mapping, "<u8", 2, PAGE_BYTES)
        self._barrier = threading.Lock()

    def begun(self) -> int:
        with self._barrier:
            return int(self._words[0]) - 1

    def applied(self) -> int:
        with self._barrier:
            return int(self._words[1]) - 1

    def begin(self, step: int) -> None:
        """Say that rows of this step are about to be written."""
        self._words[0] = step + 1
        with self._barrier:
            pass

    def finish(self, step: int) -> None:
        """Say that all rows of this step are written."""
        with self._barrier:
            pass
        self._words[1] = step + 1
