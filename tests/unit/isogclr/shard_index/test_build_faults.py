"""A disk that fails during a build: the old index stays, and the error says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from isogclr.errors import IndexNotFoundError, ShardIndexError
from isogclr.shard_index.build import build_index
from isogclr.shard_index.index import ShardIndex
from support.shard_writing import write_pairs

CALLS = ("open", "write", "fsync", "rename")


@pytest.fixture
def grown(tmp_path: Path) -> Path:
    """An index of one shard, and a second shard that is not in it yet."""
    for shard in range(2):
        write_pairs(tmp_path / "data" / f"{shard}.tar", ["a", "b"])
    build_index(f"{tmp_path}/data/0.tar", tmp_path / "index", workers=1)
    return tmp_path


def grow(root: Path) -> None:
    build_index(f"{root}/data/{{0..1}}.tar", root / "index", workers=1)


def contents(index: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in index.iterdir()}


def record(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[tuple[str, str]]:
    """The calls that touch the index, as (name, file)."""
    trace: list[tuple[str, str]] = []
    places: dict[int, str] = {}

    def wrap(name: str) -> Callable[..., Any]:
        original = getattr(os, name)

        def call(first: Any, *rest: Any, **options: Any) -> Any:
            result = original(first, *rest, **options)
            if name == "open" and str(first).startswith(str(root)):
                places[result] = Path(first).name
                if rest[0] & os.O_CREAT:
                    trace.append(("create", Path(first).name))
            elif name == "rename":
                trace.append((name, Path(rest[0]).name))
            elif name != "open" and first in places:
                trace.append((name, places[first]))
            return result

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, wrap(name))
    return trace


def test_the_order_of_the_calls(grown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content, then its fsync, then the directory, then the header, its fsync, its name, the directory again."""
    trace = record(monkeypatch, grown / "index")
    grow(grown)
    partial = next(name for call, name in trace if name.startswith(".partial-index.json"))
    shortened = [call for position, call in enumerate(trace) if position == 0 or trace[position - 1] != call]
    assert shortened == [
        ("create", "lock"),
        ("create", "rows-2.bin"),
        ("write", "rows-2.bin"),
        ("fsync", "rows-2.bin"),
        ("create", "tables-2.bin"),
        ("write", "tables-2.bin"),
        ("fsync", "tables-2.bin"),
        ("fsync", "index"),
        ("create", partial),
        ("write", partial),
        ("fsync", partial),
        ("rename", "index.json"),
        ("fsync", "index"),
    ]


def fail_at(monkeypatch: pytest.MonkeyPatch, name: str, number: int, code: int, root: Path) -> list[int]:
    """Let one call on the index fail; the list holds how often the call was made."""
    original = getattr(os, name)
    made: list[int] = []
    places: set[int] = set()
    plain_open = os.open

    def tracked_open(path: Any, *rest: Any, **options: Any) -> int:
        descriptor = plain_open(path, *rest, **options)
        if str(path).startswith(str(root)):
            places.add(descriptor)
        return descriptor

    def call(first: Any, *rest: Any, **options: Any) -> Any:
        if (first in places) if isinstance(first, int) else str(first).startswith(str(root)):
            made.append(len(made))
            if made[-1] == number:
                raise OSError(code, os.strerror(code))
        if name == "open":
            return tracked_open(first, *rest, **options)
        return original(first, *rest, **options)

    monkeypatch.setattr(os, "open", tracked_open)
    monkeypatch.setattr(os, name, call)
    return made


def failure(work: Callable[[], None]) -> str | None:
    """What the error said, None if there was none."""
    try:
        work()
    except ShardIndexError as error:
        if "can not be written" not in str(error):
            raise
        return str(error)
    return None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("name", CALLS)
def test_every_call_fails_once(grown: Path, name: str, code: int) -> None:
    index = grown / "index"
    before = contents(index)
    old = ShardIndex.load(index).fingerprint
    for number in range(30):
        with pytest.MonkeyPatch.context() as patch:
            made = fail_at(patch, name, number, code, index)
            message = failure(partial(grow, grown))
        if message is None:
            assert len(made) <= number, "the failure was swallowed"
            break
        assert os.strerror(code) in message
        assert str(index) in message
        opened = ShardIndex.load(index)
        opened.verify()
        if name in ("fsync", "open") and opened.fingerprint != old:
            assert made == list(range(number + 1))  # the last fsync of the directory: the new index is there
            assert "rows-2.bin" in contents(index)
            return
        assert contents(index) == before
    else:
        pytest.fail("the build never came to its end")
    assert number > 0
    assert ShardIndex.load(index).number_of_rows == 4


def test_short_writes_are_continued(grown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: original(descriptor, bytes(data)[:7]))
    grow(grown)
    index = ShardIndex.load(grown / "index")
    index.verify()
    assert index.number_of_rows == 4


def test_the_first_build_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pairs(tmp_path / "0.tar", ["a"])

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(ShardIndexError, match=r"can not be written .*No space left on device.*make room"):
            build_index(str(path), tmp_path / "index", workers=1)
    with pytest.raises(IndexNotFoundError):
        ShardIndex.load(tmp_path / "index")
    assert [file.name for file in (tmp_path / "index").iterdir()] == ["lock"]
    build_index(str(path), tmp_path / "index", workers=1)
    assert ShardIndex.load(tmp_path / "index").number_of_rows == 1


def test_a_shard_that_fails_while_it_is_read_is_no_fault_of_the_index(
    grown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    before = contents(grown / "index")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", broken)
        with pytest.raises(ShardIndexError, match=r"1\.tar can not be read: .*Input/output error"):
            grow(grown)
    assert contents(grown / "index") == before
