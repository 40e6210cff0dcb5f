"""Copies of files: complete or not there, and nobody's but their own."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from isogclr import durable
from isogclr.durable import copy_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(b"0123456789" * 1000)
    return path


def test_a_copy_is_a_file_of_its_own(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"old")
    copy_file(source, target)
    assert target.read_bytes() == source.read_bytes()
    with target.open("r+b") as file:
        file.write(b"changed in place")
    assert source.read_bytes() == b"0123456789" * 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]


def test_extents_are_shared_where_that_is_possible(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file systems of tests rarely can: the call is played."""

    def play(target: int, request: int, original: int) -> None:
        assert request == 0x40049409
        os.pwrite(target, os.pread(original, 100_000, 0), 0)

    def copied(*_: Any) -> None:
        raise AssertionError("the bytes were copied")

    monkeypatch.setattr(durable.fcntl, "ioctl", play)
    monkeypatch.setattr(durable.shutil, "copyfile", copied)
    copy_file(source, tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == source.read_bytes()


def test_content_is_durable_before_the_name_and_the_name_before_the_return(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(descriptor: int) -> None:
        calls.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name.partition('-')[0]}")  # noqa: PTH115
        fsync(descriptor)

    def noted_rename(old: Path, new: Path) -> None:
        calls.append(f"rename to {new.name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    (tmp_path / "folder").mkdir()
    copy_file(source, tmp_path / "folder" / "target")
    assert calls == ["fsync .partial", "rename to target", "fsync folder"]


@pytest.mark.parametrize("name", ["fsync", "rename"])
def test_a_copy_that_fails_leaves_the_old_file(
    name: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = tmp_path / "target"
    target.write_bytes(b"old")
    monkeypatch.setattr(os, name, fail)
    with pytest.raises(OSError, match="No space"):
        copy_file(source, target)
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source", "target"]
