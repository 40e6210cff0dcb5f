"""A failure of one rank ends all ranks, soon, with its cause printed once; a wish to stop reaches all of them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import traceback

from isogclr.distributed import FailureBoard, Ranks, is_lost_connection
from isogclr.errors import DataError, IsogclrError, StorageFullError
from training import full_disk
from training.signals import StopRequest

FAILED_EXIT_CODE = 1
POLL_SECONDS = 1.0
# Rank 0 keeps the board: if it fails, it stays until the others have read why, at most this long.
NOTICE_SECONDS = 8.0
# A rank whose neighbour has failed gets an error from its next collective at once (gloo) or never (NCCL). After
# this long it ends without one.
GRACE_SECONDS = 15.0
# An answer of the rendezvous store takes milliseconds.
CLOSE_SECONDS = 20.0


class FailureWatch:
    """Looks for failures of other ranks in a thread, and ends this process if its main thread does not.

    The thread also tells other ranks that this one was asked to stop, and interrupts this one's wait for data when
    another was.

    Args:
        ranks: of the run; one rank alone needs no watch.
        stop: of this process.
        grace_seconds: how long the main thread may take to notice by itself.
    """

    def __init__(self, ranks: Ranks, stop: StopRequest, grace_seconds: float = GRACE_SECONDS) -> None:
        self._rank = ranks.rank
        self._others = ranks.size - 1
        self._board = FailureBoard()
        self._stop = stop
        self._has_passed_on = False
        self._grace_seconds = grace_seconds
        self._has_failed = False
        self._ended = threading.Event()
        self._acknowledged = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="failure-watch", daemon=True)
        if self._others:
            self._thread.start()

    def close(self) -> bool:
        """The run is over; what happens to other ranks from now on does not matter here.

        A thread that is inside the rendezvous store when the interpreter ends is unwound through C++ code that does
        not allow it, and takes the process down with SIGABRT: a finished rank would count as a failed one.

        Returns:
            Whether the thread has ended; if not, the store does not answer, and only `end_process` leaves safely.
        """
        self._ended.set()
        if self._others:
            self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def fail(self, error: BaseException) -> None:
        """Report an error of this rank, once. Only the first failure of a run is printed with its cause."""
        if self._has_failed:
            return
        # torch's handler raises wherever the program is when a data worker dies, and workers die on the way out as
        # well: raised in here, or while the log is written, it would cost the message.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._has_failed = True
        cause = f"rank {self._rank}: {describe(error)}"
        if self._is_first(cause):
            with contextlib.suppress(StorageFullError):  # of the log: the terminal has got it
                logging.error(cause)
        else:
            logging.info(f"rank {self._rank} ends, because another rank has failed")
        if self._rank == 0:
            self._wait_until_known()

    def _is_first(self, cause: str) -> bool:
        if self._acknowledged.is_set():
            return False
        try:
            is_first = self._board.report(cause)
            self._acknowledge()
        except RuntimeError:  # rank 0 kept the board, and was killed; somebody must say so, and only one
            return self._rank == 1
        return is_first

    def _acknowledge(self) -> None:
        if self._rank != 0:
            self._acknowledged.set()
            self._board.acknowledge()

    def _wait_until_known(self) -> None:
        deadline = time.monotonic() + NOTICE_SECONDS
        while self._board.acknowledged() < self._others and time.monotonic() < deadline:
            time.sleep(0.02)

    def _watch(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            try:
                cause = self._board.first()
                if cause is not None and not self._acknowledged.is_set():
                    self._acknowledge()
                if cause is None:
                    self._pass_on()
            except RuntimeError:
                cause = "rank 0 is gone"
            if cause is not None:
                self._end_soon(cause)

    def _pass_on(self) -> None:
        """A wish to stop, to the other ranks or to this one, once."""
        if self._has_passed_on:
            return
        if self._stop.signal is not None:
            self._board.ask_to_stop()
            self._has_passed_on = True
        elif self._board.is_asked_to_stop():
            self._stop.pass_on()
            self._has_passed_on = True

    def _end_soon(self, cause: str) -> None:
        deadline = time.monotonic() + self._grace_seconds
        while time.monotonic() < deadline:
            if self._ended.wait(POLL_SECONDS):
                return
        logging.info(f"rank {self._rank} ends, because another rank has failed: {cause.splitlines()[0]}")
        end_process(FAILED_EXIT_CODE)


def describe(error: BaseException) -> str:
    """Our own errors speak for themselves; of others the place matters."""
    own = worker_death(error) or full_disk.named(error) or error
    if isinstance(own, IsogclrError):
        return str(own)
    if is_lost_connection(error):
        return (
            f"lost the connection to another rank ({str(error).splitlines()[0]}), and none has said why: a process "
            "was killed, often for want of memory, or a node is down; look there, then go on with --resume latest"
        )
    return "".join(traceback.format_exception(error)).rstrip()


def worker_death(error: BaseException, is_receiving: bool = False) -> DataError | None:
    """Whether this error means that a worker process has died.

    torch's signal handler says so, wherever the program just is; or a tensor is not handed over any more.
    """
    text = str(error).strip()
    is_told = isinstance(error, RuntimeError) and text.startswith(
        ("DataLoader worker (pid", "Pin memory thread exited")
    )
    is_cut_off = is_receiving and isinstance(error, OSError | EOFError)
    if text.startswith("Caught ") or not (is_told or is_cut_off):  # "Caught": an exception of a worker that lives
        return None
    return DataError(
        f"a data worker process ended by itself ({text or type(error).__name__}): often memory or shared memory is "
        "full; use fewer workers or a smaller batch, and resume from the last checkpoint"
    )


def end_process(code: int) -> None:
    """Leave without the usual clean-up, which could wait for ranks or workers that never answer."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
