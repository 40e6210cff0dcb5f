"""Progress bars: a bar on a terminal, a line every ten seconds in a log. The only module that imports tqdm.

A bar redraws itself ten times a second by going back to the start of its line. A log does not go back: there, one
line stays of what was drawn in ten seconds, and one of how it ended.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any, TextIO

from tqdm import tqdm

LINE_SECONDS = 10.0


def progress_bar(iterable: Iterable[Any] | None = None, **options: Any) -> Any:
    """A bar of tqdm on stderr, with tqdm's options."""
    return tqdm(iterable, file=_for_bars(sys.stderr), **options)


@contextmanager
def bars_of_others(quiet: bool = False) -> Iterator[None]:
    """clip_benchmark and open_clip draw bars unasked: in here, as ours do; when quiet, not at all.

    What is no bar passes.
    """
    with redirect_stderr(BarLines(sys.stderr, math.inf) if quiet else _for_bars(sys.stderr)):
        yield


def _for_bars(stream: TextIO) -> Any:
    return stream if isinstance(stream, BarLines) or stream.isatty() else BarLines(stream)


class BarLines:
    """A stream for tqdm to write to: what starts with a carriage return is a bar, and a line feed ends one.

    Args:
        stream: where lines go, and all that is no bar.
        seconds: from one line to the next; infinite drops all, even the last.
    """

    def __init__(
        self, stream: TextIO, seconds: float = LINE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._seconds = seconds
        self._clock = clock
        self._written_at = clock()
        self._in_bar = False
        self._drawn = ""  # the newest state of a bar, as long as no line tells it

    def write(self, text: str) -> int:
        if text.startswith("\r"):
            self._in_bar = True
            self._drawn = text.strip()
            if self._clock() >= self._written_at + self._seconds:
                self._write_line()
        elif text == "\n" and self._in_bar:
            self._in_bar = False
            if self._seconds < math.inf:
                self._write_line()
        else:
            self._stream.write(text)
        return len(text)

    def _write_line(self) -> None:
        if self._drawn:
            self._stream.write(f"{self._drawn}\n")
            self._stream.flush()
        self._drawn = ""
        self._written_at = self._clock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
