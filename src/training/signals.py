"""Requests to stop. Imports nothing heavy: handlers must stand before torch is loaded."""

from __future__ import annotations

import os
import signal
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
# EX_TEMPFAIL of sysexits.h: stopped on request after a commit; the same command with `--resume latest` goes on.
STOPPED_EXIT_CODE = 75


class StopRequest:
    """Remembers that somebody asked this process to stop.

    Slurm signals every process of a job, data workers too, and a fork inherits handlers: so they look at the pid.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self.signal: signal.Signals | None = None

    @classmethod
    def install(cls) -> StopRequest:
        """Handle SIGTERM and SIGUSR1 from here on."""
        request = cls()
        for number in STOP_SIGNALS:
            signal.signal(number, request._handle)
        return request

    def __bool__(self) -> bool:
        return self.signal is not None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._owner:
            self.signal = signal.Signals(number)
