"""Folders of pictures as shards: which files count, which folders, and how they grow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isogclr.errors import DataError, ShardIndexError
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.addresses import shard_stat
from isogclr.shard_index.class_folders import folders_with_pictures, is_picture
from isogclr.shard_index.files import FOLDER
from isogclr.shard_index.picture_layouts import picture_shards
from isogclr.shard_index.picture_listing import list_samples
from support.picture_sets import encoded, write_folders


def names(root: Path) -> list[str]:
    return [str(Path(one).relative_to(root)) for one in folders_with_pictures(str(root))]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.png", True),
        ("a.b.JPEG", True),
        ("ü.webp", True),
        (".png", False),
        ("._a.png", False),
        ("png", False),
        ("a.png.txt", False),
        ("Thumbs.db", False),
    ],
)
def test_which_files_are_pictures(name: str, expected: bool) -> None:
    assert is_picture(name) == expected


def test_folders_without_pictures_are_no_classes(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"b": 1, "a": 2, "empty": 0, ".hidden": 1})
    (root / "notes").mkdir()
    (root / "notes" / "readme.txt").write_text("")
    (root / "list.csv").write_text("")
    assert names(root) == ["a", "b"]


def test_classes_may_lie_deeper(tmp_path: Path) -> None:
    """iNaturalist has supercategory/class: a class is the folder that holds the pictures."""
    root = write_folders(tmp_path / "data", {"Aves/2": 1, "Aves/1": 1, "Fungi/1": 1})
    assert names(root) == ["Aves/1", "Aves/2", "Fungi/1"]


def test_pictures_in_the_root_are_one_folder(tmp_path: Path) -> None:
    assert names(write_folders(tmp_path / "data", {".": 3})) == ["."]


@pytest.mark.parametrize("inner", ["cat/small", "cat/a/b"])
def test_pictures_beside_folders_of_pictures_are_ambiguous(tmp_path: Path, inner: str) -> None:
    root = write_folders(tmp_path / "data", {"cat": 1, "cat-2": 1, inner: 1, "dog": 1})
    with pytest.raises(DataError, match=rf"cat holds pictures, and so does .*{inner}"):
        folders_with_pictures(str(root))


def test_parts_of_a_data_set_are_no_classes(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"train/cat": 1, "val/cat": 1})
    with pytest.raises(DataError, match=r"holds the part train of a data set.*name .*/data/train"):
        folders_with_pictures(str(root))
    assert names(root / "train") == ["cat"]


def test_a_class_may_be_named_train(tmp_path: Path) -> None:
    assert names(write_folders(tmp_path / "data", {"train": 1, "bus": 1})) == ["bus", "train"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"a": 1})
    other = write_folders(tmp_path / "other", {"b": 2})
    (root / "b").symlink_to(other / "b")
    (root / "loop").symlink_to(root)
    assert names(root) == ["a", "b"]
    assert ShardIndex.build(str(root), tmp_path / "index").number_of_rows == 3


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"日本": 1, "a b{1,2}::c": 1})
    strange = os.fsdecode(b"\xff\xfe.png")
    (root / "日本" / strange).write_bytes(encoded(5))
    index = ShardIndex.build(str(root), tmp_path / "index")
    assert index.locate([0, 1, 2]) == [("a b{1,2}::c", "000.png"), ("日本", "000.png"), ("日本", strange)]
    again = ShardIndex.build(str(root), tmp_path / "index")
    assert again.fingerprint == index.fingerprint


@pytest.mark.parametrize("name", ["braces{0,1}", "a::b", "${X}"])
def test_the_root_may_have_any_name(tmp_path: Path, name: str) -> None:
    root = write_folders(tmp_path / name, {"cat": 1})
    assert picture_shards(str(root)) == [str(root / "cat")]


def test_nothing_in_it(tmp_path: Path) -> None:
    (tmp_path / "data" / "cat").mkdir(parents=True)
    with pytest.raises(DataError, match=r"holds no pictures: expected CLASS/\*\.png"):
        picture_shards(str(tmp_path / "data"))
    (tmp_path / "data" / "000.tar").write_bytes(b"")
    with pytest.raises(DataError, match="for its shards name the files"):
        picture_shards(str(tmp_path / "data"))


class TestIndex:
    def test_a_folder_is_a_shard_and_a_file_name_is_a_key(self, tmp_path: Path) -> None:
        root = write_folders(tmp_path / "data", {"b": 2, "a": 1})
        index = ShardIndex.build(str(root), tmp_path / "index")
        assert index.locate([0, 1, 2]) == [("a", "000.png"), ("b", "000.png"), ("b", "001.png")]
        assert {int(one["kind"]) for one in index.files.tables.shards} == {FOLDER}
        index.verify()
        index.verify_shards()
        index.check(picture_shards(str(root)))

    def test_growth_keeps_old_rows(self, tmp_path: Path) -> None:
        root = write_folders(tmp_path / "data", {"a": 2, "c": 1})
        old = ShardIndex.build(str(root), tmp_path / "index")
        (root / "a" / "-first.png").write_bytes(encoded(7))
        write_folders(root, {"b": 1})
        with pytest.raises(ShardIndexError, match="has 3 pictures, it had 2"):
            old.check(picture_shards(str(root))[:1])
        new = ShardIndex.build(str(root), tmp_path / "index")
        assert new.locate(range(5)) == [
            ("a", "000.png"),
            ("a", "001.png"),
            ("c", "000.png"),
            ("a", "-first.png"),
            ("b", "000.png"),
        ]
        assert new.rows_at(old.fingerprint) == 3

    def test_another_picture_under_the_same_name_is_noticed(self, tmp_path: Path) -> None:
        root = write_folders(tmp_path / "data", {"a": 2})
        index = ShardIndex.build(str(root), tmp_path / "index")
        (root / "a" / "000.png").write_bytes(encoded(9, (12, 12)))
        with pytest.raises(ShardIndexError, match="has other members"):
            index.verify_shards()

    def test_the_size_of_a_folder_is_its_number_of_pictures(self, tmp_path: Path) -> None:
        root = write_folders(tmp_path / "data", {"a": 4})
        (root / "a" / "notes.txt").write_text("")
        assert shard_stat(str(root / "a"))[0] == 4
        assert list_samples(str(root / "a")).key_list() == [b"000.png", b"001.png", b"002.png", b"003.png"]
