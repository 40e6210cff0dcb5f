"""CIFAR as its official archives are unpacked: all of it, and what may be wrong with it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from isogclr.errors import DataError, ShardIndexError
from isogclr.shard_index import ShardIndex, cifar_batches
from isogclr.shard_index.addresses import shard_kind
from isogclr.shard_index.files import CIFAR, TAR
from isogclr.shard_index.picture_layouts import picture_shards
from support.picture_sets import cifar_file, random_pixels, write_cifar10, write_cifar100

PIXELS = random_pixels(50)
LABELS = [number % 10 for number in range(50)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_cifar10(tmp_path / "data", PIXELS, LABELS)


def test_pixels_are_mapped_and_not_copied(folder: Path) -> None:
    batch = cifar_batches.read_batch(folder / "data_batch_3")
    assert np.array_equal(batch.pixels, PIXELS[20:30])
    assert batch.labels.tolist() == LABELS[20:30]
    assert isinstance(batch.pixels, np.memmap)
    assert not batch.pixels.flags.owndata
    assert not batch.pixels.flags.writeable


def test_fine_labels_of_cifar_100(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path, PIXELS, [2 * number for number in range(50)])
    assert cifar_batches.read_batch(folder / "train").labels.tolist() == [2 * number for number in range(50)]
    found = cifar_batches.find_layout(folder)
    assert found is not None
    names = cifar_batches.class_names(*found)
    assert names is not None
    assert names[:2] == ("class 0", "class 1")
    assert len(names) == 100


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_folder_and_the_one_above_are_the_same(folder: Path, split: str) -> None:
    found = picture_shards(str(folder), split)
    assert found == picture_shards(str(folder.parent), split)
    assert [Path(one).name for one in found] == (
        [f"data_batch_{number}" for number in range(1, 6)] if split == "train" else ["test_batch"]
    )


def test_a_renamed_folder_is_known_by_its_files(folder: Path) -> None:
    renamed = folder.rename(folder.with_name("my pictures"))
    assert len(picture_shards(str(renamed))) == 5


def test_two_archives_in_one_folder_are_ambiguous(folder: Path) -> None:
    write_cifar100(folder.parent, PIXELS, LABELS)
    with pytest.raises(DataError, match=r"cifar-10-batches-py and .*cifar-100-python: name one"):
        picture_shards(str(folder.parent))


def test_a_part_that_is_missing(folder: Path) -> None:
    (folder / "data_batch_4").unlink()
    with pytest.raises(DataError, match=r"has no data_batch_4: .*unpack the official archive again"):
        picture_shards(str(folder))
    assert picture_shards(str(folder), "test")


def test_a_split_that_there_is_not(folder: Path) -> None:
    with pytest.raises(DataError, match=r"train and test, and 'val' was asked for"):
        picture_shards(str(folder), "val")


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "cifar-100-python.tar.gz"])
def test_an_archive_that_is_still_packed(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(DataError, match="unpack it"):
        picture_shards(str(tmp_path / name))


@pytest.mark.parametrize("length", [0, 1, 100, 20_000, -1])
def test_a_file_that_is_cut_short(folder: Path, length: int) -> None:
    file = folder / "data_batch_5"
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(ShardIndexError, match=r"data_batch_5 can not be read: .*unpack the official archive again"):
        ShardIndex.build(str(folder), folder.parent / "index")
    assert not (folder.parent / "index" / "index.json").exists()


def test_a_file_without_labels(folder: Path) -> None:
    (folder / "data_batch_1").write_bytes(cifar_file({"labels": b"]"}))
    with pytest.raises(ShardIndexError, match="it holds labels, expected data and labels"):
        cifar_batches.read_batch(folder / "data_batch_1")


def test_fewer_labels_than_pictures(folder: Path) -> None:
    content = (folder / "data_batch_1").read_bytes()
    (folder / "data_batch_1").write_bytes(content.replace(b"labels](K\x00", b"labels](", 1))
    with pytest.raises(ShardIndexError, match=r"9 labels for an array of shape \(10, 3072\)"):
        cifar_batches.read_batch(folder / "data_batch_1")


def test_the_file_of_names_may_be_missing_but_not_damaged(folder: Path) -> None:
    found = cifar_batches.find_layout(folder)
    assert found is not None
    (folder / "batches.meta").write_bytes(cifar_file({"num_vis": b"K\x01"}))
    with pytest.raises(ShardIndexError, match=r"batches\.meta can not be read: it has no list label_names"):
        cifar_batches.class_names(*found)
    (folder / "batches.meta").unlink()
    assert cifar_batches.class_names(*found) is None


def test_a_batch_is_a_shard_and_a_place_is_a_key(folder: Path) -> None:
    index = ShardIndex.build(str(folder), folder.parent / "index")
    assert index.number_of_rows == 50
    assert index.locate([23]) == [("data_batch_3", "3")]
    assert index.row("data_batch_3", "3") == 23
    index.verify()
    index.verify_shards()
    assert [int(one["kind"]) for one in index.files.tables.shards] == [CIFAR] * 5


def test_changed_pixels_are_noticed(folder: Path) -> None:
    index = ShardIndex.build(str(folder), folder.parent / "index")
    content = bytearray((folder / "data_batch_2").read_bytes())
    place = content.index(PIXELS[12].tobytes())
    content[place] ^= 1
    (folder / "data_batch_2").write_bytes(content)
    with pytest.raises(ShardIndexError, match="data_batch_2 has other members"):
        index.verify_shards()


def test_a_move_keeps_the_rows(folder: Path) -> None:
    index = ShardIndex.build(str(folder), folder.parent / "index")
    moved = folder.parent / "elsewhere" / folder.name
    shutil.move(folder, moved)
    again = ShardIndex.build(str(moved), folder.parent / "index")
    assert again.fingerprint == index.fingerprint


def test_a_tar_with_the_name_of_a_batch_is_a_tar(tmp_path: Path) -> None:
    (tmp_path / "train").write_bytes(b"000.png" + bytes(505))
    assert shard_kind(str(tmp_path / "train")) == TAR
