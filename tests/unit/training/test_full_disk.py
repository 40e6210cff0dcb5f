"""A full disk, met by the log, by threads and by whoever else writes: one line, and no traceback."""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from isogclr.errors import StorageFullError
from training import full_disk
from training.full_disk import LogFile
from training.ranks.failures import describe

FULL = Path("/dev/full")  # takes no byte


@pytest.fixture
def log() -> Iterator[LogFile]:
    handler = LogFile(FULL)
    logging.root.addHandler(handler)
    yield handler
    logging.root.removeHandler(handler)
    with contextlib.suppress(OSError):  # what it could not write
        handler.close()


def test_the_log_ends_the_run_once(log: LogFile, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StorageFullError, match=r"^/dev/full: could not write the log: the disk is full"):
        logging.error("a line")
    logging.error("the cause")  # to the terminal
    assert log not in logging.root.handlers
    assert "Logging error" not in capsys.readouterr().err


def test_other_threads_go_on(log: LogFile, capsys: pytest.CaptureFixture[str]) -> None:
    thread = threading.Thread(target=logging.error, args=["a line"])
    thread.start()
    thread.join()
    assert log in logging.root.handlers
    assert capsys.readouterr().err == ""


def test_another_fault_of_the_log_is_said_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    handler = LogFile(FULL)
    handler.handle(logging.makeLogRecord({"msg": "%d", "args": ("no number",)}))
    handler.close()
    assert "Logging error" in capsys.readouterr().err


@pytest.mark.parametrize(("code", "is_said"), [(errno.ENOSPC, False), (errno.EIO, True)])
def test_threads_leave_a_full_disk_to_the_main_thread(
    code: int, is_said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    full_disk.leave_to_main_thread()

    def write() -> None:
        raise OSError(code, "refused")

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert bool(said) == is_said


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_whoever_meets_it(code: int, tmp_path: Path) -> None:
    for error, place in (
        (OSError(code, "full", str(tmp_path / "x")), str(tmp_path)),
        (OSError(code, "full"), "df -h"),
    ):
        text = describe(error)
        assert place in text
        assert "full" in text
        assert "\n" not in text
    assert "Traceback" not in describe(OSError(code, "full"))
    assert full_disk.named(OSError(errno.EIO, "broken")) is None
    assert full_disk.named(ValueError("full")) is None
