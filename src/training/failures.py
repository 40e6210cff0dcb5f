"""A failure of one rank ends all ranks, soon, with its cause printed once."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback

from isogclr.distributed import FailureBoard, Ranks
from isogclr.errors import IsogclrError

FAILED_EXIT_CODE = 1
POLL_SECONDS = 1.0
# A rank whose neighbour has failed gets an error from its next collective at once (gloo) or never (NCCL). After
# this long it ends without one.
GRACE_SECONDS = 15.0
# Rank 0 keeps the board, so it leaves last: the others must see that they are not the first to fail. But not later
# than this: a rank that was killed does not leave, and one may have nothing to notice the failure by.
LAST_TO_LEAVE_SECONDS = 3.0


class FailureWatch:
    """Looks for failures of other ranks in a thread, and ends this process if its main thread does not.

    Args:
        ranks: of the run; one rank alone needs no watch.
        grace_seconds: how long the main thread may take to notice by itself.
    """

    def __init__(self, ranks: Ranks, grace_seconds: float = GRACE_SECONDS) -> None:
        self._rank, self._size = ranks.rank, ranks.size
        self._board = FailureBoard()
        self._grace_seconds = grace_seconds
        self._ended = threading.Event()
        if ranks.size > 1:
            threading.Thread(target=self._watch, name="failure-watch", daemon=True).start()

    def close(self) -> None:
        """The run is over; what happens to other ranks from now on does not matter here."""
        self._ended.set()

    def fail(self, error: BaseException) -> None:
        """Report an error of this rank. Only the first failure of a run is printed with its cause."""
        cause = f"rank {self._rank}: {describe(error)}"
        try:
            first = self._board.report(cause)
        except RuntimeError:  # rank 0 kept the board, and is gone
            first = True
        if first:
            logging.error(cause)
        else:
            logging.info(f"rank {self._rank} ends, because another rank has failed")
        self._leave()

    def _leave(self) -> None:
        deadline = time.monotonic() + LAST_TO_LEAVE_SECONDS
        try:
            left = self._board.leave()
            while self._rank == 0 and left < self._size and time.monotonic() < deadline:
                time.sleep(0.05)
                left = self._board.left()
        except RuntimeError:  # the board is gone
            pass

    def _watch(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            try:
                cause = self._board.first()
            except RuntimeError:
                cause = "rank 0 is gone"
            if cause is not None:
                self._end_soon(cause)

    def _end_soon(self, cause: str) -> None:
        deadline = time.monotonic() + self._grace_seconds
        while time.monotonic() < deadline:
            if self._ended.wait(POLL_SECONDS):
                return
        logging.info(f"rank {self._rank} ends, because another rank has failed: {cause.splitlines()[0]}")
        end_process(FAILED_EXIT_CODE)


def describe(error: BaseException) -> str:
    """Our own errors speak for themselves; of others the place matters."""
    if isinstance(error, IsogclrError):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()


def end_process(code: int) -> None:
    """Leave without the usual clean-up, which could wait for ranks or workers that never answer."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
