"""A full disk is said in one line, whichever part of a run meets it first: often the log."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from pathlib import Path

from isogclr.errors import StorageFullError
from isogclr.state.faults import full_disk, is_full_disk


class LogFile(logging.FileHandler):
    """The log of a run in its folder. A disk that takes no more of it ends the run: no commit would fit either.

    logging's own answer is a traceback for every line. What is said from then on, the reason among it, goes to the
    terminal only.
    """

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not is_full_disk(error):
            super().handleError(record)
        elif threading.current_thread() is threading.main_thread():
            logging.root.removeHandler(self)
            with contextlib.suppress(OSError):  # what is left of the line
                self.close()
            raise full_disk(Path(self.baseFilename), "write the log") from error


def leave_to_main_thread() -> None:
    """Of a full disk threads say nothing: the main thread meets it too. TensorBoard's would print a traceback."""
    before = threading.excepthook

    def hook(details: threading.ExceptHookArgs) -> None:
        if not is_full_disk(details.exc_value):
            before(details)

    threading.excepthook = hook


def named(error: BaseException) -> StorageFullError | None:
    """A full disk that nobody has put into words; None if it is something else."""
    if isinstance(error, StorageFullError) or not is_full_disk(error):
        return None
    assert isinstance(error, OSError)
    place = Path(str(error.filename)) if error.filename else None
    if place is not None:
        return full_disk(place, "write it")
    return StorageFullError(
        f"a disk that this run writes to is full ({error.strerror}), expected room: `df -h` says which; what was "
        "committed before is intact: free space there, then go on with --resume latest"
    )
