"""Files that are altered, cut, foreign or newer are refused with a typed error, never used."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from isogclr.errors import IndexNotFoundError, ShardIndexError
from isogclr.shard_index.build import build_index
from isogclr.shard_index.files import Header, decode_header
from isogclr.shard_index.index import ShardIndex
from support.shard_writing import write_pairs


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of two generations, with two files of keys."""
    root = tmp_path_factory.mktemp("whole")
    for shard in range(3):
        write_pairs(root / "data" / f"{shard}.tar", [f"{shard}-{key}" for key in range(5)])
    build_index(f"{root}/data/{{0..1}}.tar", root / "index", workers=1)
    build_index(f"{root}/data/{{0..2}}.tar", root / "index", workers=1)
    return root / "index"


@pytest.fixture
def index(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "index"))


def files(index: Path) -> list[Path]:
    return sorted(file for file in index.iterdir() if file.name != "lock")


def load(index: Path) -> None:
    ShardIndex.load(index)


def load_and_verify(index: Path) -> None:
    ShardIndex.load(index).verify()


def look_everything_up(index: Path) -> None:
    opened = ShardIndex.load(index)
    for shard in range(opened.number_of_shards):
        opened.shard_rows(shard)


def refused(index: Path, use: Callable[[Path], None]) -> bool:
    try:
        use(index)
    except ShardIndexError as error:
        if not re.search("restore it from a copy|is no shard index|install a newer isogclr", str(error)):
            raise
        return True
    return False


def test_the_fixture_is_whole(index: Path) -> None:
    load_and_verify(index)
    assert [file.name for file in files(index)] == ["index.json", "rows-1.bin", "rows-2.bin", "tables-2.bin"]


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("index.json", load),
        ("tables-2.bin", load),
        ("rows-1.bin", load_and_verify),
        ("rows-2.bin", load_and_verify),
        ("rows-1.bin", look_everything_up),
        ("rows-2.bin", look_everything_up),
    ],
)
def test_every_byte_flipped(index: Path, name: str, use: Callable[[Path], None]) -> None:
    """The small files at once; the files of keys by `verify`, and before any of their keys is used."""
    data = (index / name).read_bytes()
    chance = random.Random(name)
    for place in range(len(data)):
        for value in {data[place] ^ 1 << chance.randrange(8), data[place] ^ 0x20, chance.randrange(256)} - {
            data[place]
        }:
            changed = bytearray(data)
            changed[place] = value
            (index / name).write_bytes(changed)
            assert refused(index, use), (place, data[place], value)


@pytest.mark.parametrize("name", ["index.json", "tables-2.bin", "rows-1.bin", "rows-2.bin"])
def test_truncated_or_grown(index: Path, name: str) -> None:
    data = (index / name).read_bytes()
    for length in range(len(data)):
        (index / name).write_bytes(data[:length])
        assert refused(index, load), length
    (index / name).write_bytes(data + b"\n")
    assert refused(index, load)


@pytest.mark.parametrize("name", ["tables-2.bin", "rows-1.bin"])
def test_a_missing_file_is_named(index: Path, name: str) -> None:
    (index / name).unlink()
    with pytest.raises(ShardIndexError, match=f"{name} is missing: restore it"):
        load(index)


@pytest.mark.parametrize(("one", "other"), [("rows-1.bin", "rows-2.bin"), ("tables-2.bin", "rows-1.bin")])
def test_files_that_were_exchanged(index: Path, one: str, other: str) -> None:
    first, second = (index / one).read_bytes(), (index / other).read_bytes()
    (index / one).write_bytes(second)
    (index / other).write_bytes(first)
    assert refused(index, load_and_verify)


def test_a_file_of_another_index(index: Path, tmp_path: Path) -> None:
    """Same sizes, valid by itself, but of other shards."""
    for shard in range(2):
        write_pairs(tmp_path / "data" / f"{shard}.tar", [f"{shard}+{key}" for key in range(5)])
    build_index(f"{tmp_path}/data/{{0..1}}.tar", tmp_path / "other", workers=1)
    shutil.copy(tmp_path / "other" / "rows-1.bin", index / "rows-1.bin")
    load(index)
    assert refused(index, look_everything_up)
    assert refused(index, load_and_verify)


def test_something_else_by_that_name(index: Path) -> None:
    (index / "index.json").write_text(json.dumps({"format": "mosaic streaming", "version": 2}))
    with pytest.raises(ShardIndexError, match="found format 'mosaic streaming', expected 'isogclr shard index'"):
        load(index)
    (index / "index.json").write_text("[]")
    with pytest.raises(ShardIndexError, match="found format 'list'"):
        load(index)
    (index / "index.json").write_text("not json")
    with pytest.raises(ShardIndexError, match=r"is no JSON .*: restore it from a copy"):
        load(index)


def test_a_newer_version_says_what_to_install(index: Path) -> None:
    body = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps({**body, "version": 2}))
    with pytest.raises(ShardIndexError, match="has version 2, this isogclr reads version 1: install"):
        load(index)


def test_a_file_in_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(IndexNotFoundError):
        load(tmp_path / "file")
    with pytest.raises(ShardIndexError):
        build_index(["x.tar"], tmp_path / "file")


def test_a_damaged_index_is_not_built_over(index: Path, whole: Path) -> None:
    (index / "tables-2.bin").write_bytes(b"")
    before = {file.name: file.read_bytes() for file in index.iterdir()}
    with pytest.raises(ShardIndexError, match="restore it from a copy"):
        build_index(f"{whole.parent}/data/{{0..2}}.tar", index, workers=1)
    assert {file.name: file.read_bytes() for file in index.iterdir()} == before


def test_a_reader_that_comes_while_the_index_is_replaced(
    index: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the old header; when it opens the old tables, they are gone."""
    stale: list[Header] = [decode_header((index / "index.json").read_bytes(), index)]
    write_pairs(whole.parent / "data" / "3.tar", ["late"])
    build_index(f"{whole.parent}/data/{{0..3}}.tar", index, workers=1)
    fresh = decode_header((index / "index.json").read_bytes(), index)
    monkeypatch.setattr("isogclr.shard_index.files.read_header", lambda path: stale.pop() if stale else fresh)
    assert ShardIndex.load(index).number_of_rows == 16
    assert not stale
