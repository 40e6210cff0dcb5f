"""Requests to stop. Imports nothing heavy: handlers must stand before torch is loaded."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
# EX_TEMPFAIL of sysexits.h: stopped on request after a commit; the same command with `--resume latest` goes on.
STOPPED_EXIT_CODE = 75
# An interrupted wait may hang again while it cleans up (a pipe waits for its program), or lose the exception (in a
# finalizer): it is interrupted again after this long.
AGAIN_SECONDS = 2.0


class WaitInterrupted(BaseException):
    """Ends a wait for data: somebody asked to stop. No Exception, since readers and decoders go on after those."""


class StopRequest:
    """Remembers that somebody asked this process to stop, and ends its wait for data.

    Slurm signals every process of a job, data workers too, and a fork inherits handlers: so they look at the pid.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._is_waiting = False
        self._not_before = 0.0  # when a wait may be interrupted (again)
        self.signal: signal.Signals | None = None

    @classmethod
    def install(cls) -> StopRequest:
        """Handle SIGTERM and SIGUSR1 from here on, and the alarm that interrupts a wait again."""
        request = cls()
        for number in (*STOP_SIGNALS, signal.SIGALRM):
            signal.signal(number, request._handle)
        return request

    def __bool__(self) -> bool:
        return self.signal is not None

    def pass_on(self) -> None:
        """Another rank was asked. Called by another thread than the main one, whose wait a signal alone can end."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def interrupts(self) -> _Wait:
        """`with stop.interrupts():` — inside, a request raises WaitInterrupted wherever the program is.

        Whoever catches it calls `end_wait`: the exception may have come before the `with` statement was left.
        """
        return _Wait(self)

    def begin_wait(self) -> None:
        self._is_waiting = True
        if self.signal is not None:
            self._interrupt()

    def end_wait(self) -> None:
        self._is_waiting = False
        if self._not_before:
            signal.setitimer(signal.ITIMER_REAL, 0.0)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:
            return
        if number in STOP_SIGNALS:
            self.signal = signal.Signals(number)
        if self._is_waiting and self.signal is not None and time.monotonic() >= self._not_before:
            self._interrupt()

    def _interrupt(self) -> None:
        self._not_before = time.monotonic() + 0.9 * AGAIN_SECONDS  # other signals meanwhile leave cleaning up alone
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        raise WaitInterrupted


class _Wait:
    """No generator-based context manager: it would be left open by an exception between its lines."""

    def __init__(self, stop: StopRequest) -> None:
        self._stop = stop

    def __enter__(self) -> None:
        self._stop.begin_wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.end_wait()
