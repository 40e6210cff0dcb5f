"""An OSError of a write becomes one of ours, which says what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from isogclr.errors import StorageFullError, StoreError
from isogclr.state.faults import full_disk, storage_errors


def fail(path: Path, number: int) -> None:
    with storage_errors(path, "write the snapshot"):
        raise OSError(number, os.strerror(number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_says_what_may_go(tmp_path: Path, number: int) -> None:
    with pytest.raises(StorageFullError, match=r"could not write the snapshot: the disk is full .*generations"):
        fail(tmp_path / "snapshot", number)


def test_other_errors_say_what_the_system_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"snapshot: could not write the snapshot: Input/output error") as caught:
        fail(tmp_path / "snapshot", errno.EIO)
    assert not isinstance(caught.value, StorageFullError)
    assert isinstance(caught.value.__cause__, OSError)


def test_what_is_no_fault_of_the_disk_passes(tmp_path: Path) -> None:
    with pytest.raises(KeyError), storage_errors(tmp_path, "write"):
        raise KeyError


def test_the_room_that_is_left_is_counted(tmp_path: Path) -> None:
    assert "(0 bytes free)" in str(full_disk(tmp_path / "gone" / "snapshot", "write"))
    assert "(0 bytes free)" not in str(full_disk(tmp_path / "snapshot", "write"))
