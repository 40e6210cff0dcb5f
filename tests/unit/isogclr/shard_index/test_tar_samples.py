"""Samples read back by key."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from isogclr.shard_index import ShardIndex
from isogclr.shard_index.tar_samples import read_samples, samples_by_key
from support.shard_writing import Member, write_shard

MEMBERS: list[Member] = [
    ("d.x/a.JPG", b"image"),
    ("d.x/a.txt", b"text"),
    ("__meta__", b"-"),
    ("readme", b"-"),
    (b"odd-\xff.txt", b"odd"),
    ("large.bin", b"x" * 2000),
    ("large.txt", b"small"),
]


def test_all_samples_are_those_of_the_index(tmp_path: Path) -> None:
    shard = str(write_shard(tmp_path / "0.tar", MEMBERS))
    found = dict(read_samples(shard))
    assert found == {
        "d.x/a": {"jpg": b"image", "txt": b"text"},
        "odd-\udcff": {"txt": b"odd"},
        "large": {"bin": b"x" * 2000, "txt": b"small"},
    }
    index = ShardIndex.build(shard, tmp_path / "index", workers=1)
    assert [key for _, key in index.locate(range(index.number_of_rows))] == list(found)


def test_files_that_are_not_side_by_side(tmp_path: Path) -> None:
    members: list[Member] = [("a.png", b"1"), ("b.png", b"2"), ("a.cls", b"3"), ("b.cls", b"4")]
    shard = str(write_shard(tmp_path / "0.tar", members))
    assert [key for key, _ in read_samples(shard)] == ["a", "b", "a", "b"]  # as open_clip groups them
    assert samples_by_key(shard) == {"a": {"png": b"1", "cls": b"3"}, "b": {"png": b"2", "cls": b"4"}}


def test_some_keys_and_no_large_files(tmp_path: Path) -> None:
    shard = str(write_shard(tmp_path / "0.tar", MEMBERS))
    assert dict(read_samples(shard, {"large", "gone"}, largest_bytes=1999)) == {"large": {"txt": b"small"}}


def test_damage_comes_after_what_was_read(tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "0.tar", MEMBERS)
    shard.write_bytes(shard.read_bytes()[:1538])  # within the payload of the second file
    samples = read_samples(str(shard))
    assert next(samples) == ("d.x/a", {"jpg": b"image"})
    with pytest.raises(tarfile.ReadError):
        next(samples)
