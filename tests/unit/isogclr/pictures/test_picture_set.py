"""The three layouts give the same: rows, labels, names and pictures."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import numpy as np
import pytest

from isogclr.demo_data import TEST_DATA
from isogclr.errors import DataError, ShardIndexError
from isogclr.pictures import Pictures, needed_labels, open_pictures
from isogclr.shard_index import ShardIndex
from support.picture_sets import (
    add,
    encoded,
    picture,
    random_pixels,
    write_cifar10,
    write_cifar100,
    write_folders,
    write_shards,
)


def pixels(pictures: Pictures, row: int) -> np.ndarray:
    return np.asarray(pictures.read(row))


class TestFolders:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return write_folders(tmp_path / "data", {"ape": 2, "zoo/ü": 3})

    @pytest.mark.parametrize("with_index", [True, False])
    def test_rows_labels_names_and_pictures(self, root: Path, tmp_path: Path, with_index: bool) -> None:
        index = ShardIndex.build(str(root), tmp_path / "index") if with_index else None
        found = open_pictures(str(root), index)
        assert found.classes == ("ape", "zoo/ü")
        assert found.positions().tolist() == [0, 1, 2, 3, 4]
        assert found.labels is not None
        assert found.labels.tolist() == [0, 0, 1, 1, 1]
        assert found.name(3) == ("ü", "001.png")
        assert found.size == (8, 8)
        assert (found.rows, len(found)) == (5, 5)
        assert np.array_equal(pixels(found, 3), np.asarray(picture(3)))
        assert [row for row, _ in found.scan()] == [0, 1, 2, 3, 4]

    def test_rows_are_those_of_the_index(self, root: Path, tmp_path: Path) -> None:
        ShardIndex.build(str(root), tmp_path / "index")
        (root / "ape" / "-.png").write_bytes(encoded(77))
        index = ShardIndex.build(str(root), tmp_path / "index")
        found = open_pictures(str(root), index)
        assert found.positions().tolist() == [5, 0, 1, 2, 3, 4]
        assert found.labels is not None
        assert found.labels.tolist() == [0, 0, 1, 1, 1, 0]
        assert np.array_equal(pixels(found, 5), np.asarray(picture(77)))
        assert index.locate([5]) == [found.name(5)]

    def test_an_index_that_is_behind(self, root: Path, tmp_path: Path) -> None:
        index = ShardIndex.build(str(root), tmp_path / "index")
        (root / "ape" / "new.png").write_bytes(encoded(0))
        with pytest.raises(DataError, match=r"ape has 3 pictures, and the index has 2: .*isogclr index build"):
            open_pictures(str(root), index)
        (root / "ape" / "000.png").unlink()
        with pytest.raises(ShardIndexError, match=r"no key 'new\.png'"):
            open_pictures(str(root), index)

    def test_pictures_of_one_folder_have_no_labels(self, root: Path) -> None:
        found = open_pictures(str(root / "ape"))
        assert found.labels is None
        assert found.classes is None
        assert len(found) == 2

    def test_a_row_that_is_no_picture(self, root: Path) -> None:
        with pytest.raises(DataError, match="row 5 is no picture"):
            open_pictures(str(root)).read(5)
        with pytest.raises(DataError, match="row -1 is no picture"):
            open_pictures(str(root)).read(-1)

    def test_pictures_of_all_modes_become_rgb(self, tmp_path: Path) -> None:
        root = write_folders(tmp_path / "data", {"a": 0})
        for mode in ("L", "P", "RGBA", "CMYK", "1"):
            picture(0).convert(mode).save(root / "a" / f"{mode}.tiff")
        found = open_pictures(str(root))
        assert {image.mode for _, image in found.scan()} == {"RGB"}


class TestCifar:
    @pytest.mark.parametrize("with_index", [True, False])
    def test_rows_labels_names_and_pictures(self, tmp_path: Path, with_index: bool) -> None:
        expected = random_pixels(20)
        folder = write_cifar10(tmp_path, expected, [number % 7 for number in range(20)])
        index = ShardIndex.build(str(folder), tmp_path / "index") if with_index else None
        found = open_pictures(str(folder), index)
        assert found.labels is not None
        assert found.labels.tolist() == [number % 7 for number in range(20)]
        assert found.classes == tuple(f"class {number}" for number in range(10))
        assert found.name(13) == ("data_batch_4", "1")
        assert found.size == (32, 32)
        for row in range(20):
            assert np.array_equal(pixels(found, row).transpose(2, 0, 1), expected[row])

    def test_the_test_part(self, tmp_path: Path) -> None:
        folder = write_cifar100(tmp_path, random_pixels(4), [99, 3, 3, 0])
        found = open_pictures(str(folder), split="test")
        assert found.labels is not None
        assert found.labels.tolist() == [99, 3, 3, 0]
        assert found.name(1) == ("test", "1")

    def test_more_classes_than_names(self, tmp_path: Path) -> None:
        folder = write_cifar10(tmp_path, random_pixels(10), [11] * 10)
        with pytest.raises(DataError, match="class 11 and 10 names"):
            open_pictures(str(folder))

    def test_without_names_classes_are_numbers(self, tmp_path: Path) -> None:
        folder = write_cifar10(tmp_path, random_pixels(10), [0, 1] * 5)
        (folder / "batches.meta").unlink()
        assert open_pictures(str(folder)).classes == ("0", "1")


class TestShards:
    @pytest.mark.parametrize("with_index", [True, False])
    def test_rows_labels_names_and_pictures(self, tmp_path: Path, with_index: bool) -> None:
        urls = write_shards(tmp_path / "data", [[2, None], [0, 2, 2]])
        index = ShardIndex.build(urls, tmp_path / "index") if with_index else None
        found = open_pictures(urls, index)
        assert found.labels is not None
        assert found.labels.tolist() == [2, -1, 0, 2, 2]
        assert found.classes == ("0", "1", "2")
        assert found.positions().tolist() == [0, 1, 2, 3, 4]
        assert found.name(3) == ("001.tar", "0001")
        assert np.array_equal(pixels(found, 3), np.asarray(picture(3)))

    def test_without_labels(self, tmp_path: Path) -> None:
        found = open_pictures(write_shards(tmp_path / "data", [[None, None]]))
        assert found.labels is None
        assert found.classes is None
        assert len(found) == 2

    def test_compressed_ones(self, tmp_path: Path) -> None:
        write_shards(tmp_path / "data", [[1, 0]])
        packed = tmp_path / "000.tar.gz"
        packed.write_bytes(gzip.compress((tmp_path / "data" / "000.tar").read_bytes()))
        found = open_pictures(str(packed))
        assert found.labels is not None
        assert found.labels.tolist() == [1, 0]
        assert np.array_equal(pixels(found, 1), np.asarray(picture(1)))
        assert [(row, np.asarray(one).tolist()) for row, one in found.scan()] == [
            (row, np.asarray(picture(row)).tolist()) for row in (0, 1)
        ]

    def test_samples_without_a_picture_have_rows_and_no_place(self, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "0.tar", "w") as archive:
            add(archive, "a.cls", b"1")
            add(archive, "b.cls", b" 3\n")
            add(archive, "b.jpg", encoded(0, kind="JPEG"))
            add(archive, "b.cls", b"4")  # the key again
        for index in (None, ShardIndex.build(str(tmp_path / "0.tar"), tmp_path / "index")):
            found = open_pictures(str(tmp_path / "0.tar"), index)
            assert found.positions().tolist() == [1]
            assert found.labels is not None
            assert found.labels.tolist() == [-1, 3]
            assert found.rows == 2

    @pytest.mark.parametrize("label", [b"cat", b"-1", b"1.5", b"99999999"])
    def test_a_label_that_is_no_class(self, tmp_path: Path, label: bytes) -> None:
        with tarfile.open(tmp_path / "0.tar", "w") as archive:
            add(archive, "a.png", encoded(0))
            add(archive, "a.cls", label)
        with pytest.raises(DataError, match=r"the label of a of .*0\.tar is .*, expected the number of a class"):
            _ = open_pictures(str(tmp_path / "0.tar")).labels

    def test_a_shard_that_is_cut_short(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        write_shards(tmp_path / "data", [[1, 0, 1]])
        file = tmp_path / "data" / "000.tar"
        with tarfile.open(file) as archive:
            file.write_bytes(file.read_bytes()[: archive.getmembers()[4].offset_data + 10])
        index = tmp_path / "index"
        with pytest.warns(UserWarning, match="shard"):
            built = ShardIndex.build(str(file), index)
        found = open_pictures(str(file), built)
        assert set(found.positions().tolist()) <= {0, 1, 2}
        assert len(found) >= 2
        assert np.array_equal(pixels(found, 1), np.asarray(picture(1)))

    def test_no_picture_at_all(self, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "0.tar", "w") as archive:
            add(archive, "a.txt", b"a caption")
        with pytest.raises(DataError, match="hold no picture"):
            open_pictures(str(tmp_path / "0.tar")).positions()

    def test_a_shard_that_is_gone(self, tmp_path: Path) -> None:
        with pytest.raises(ShardIndexError, match="does not exist"):
            open_pictures(str(tmp_path / "0.tar"))

    def test_labels_from_a_field_of_the_metadata(self) -> None:
        found = open_pictures(TEST_DATA, label="group")
        assert found.classes is not None
        assert "animals-nature" in found.classes
        assert list(found.classes) == sorted(found.classes)
        labels = needed_labels(found, "the test")
        assert np.bincount(labels).min() > 0
        assert found.size == (48, 48)


def test_kinds_are_not_mixed(tmp_path: Path) -> None:
    urls = write_shards(tmp_path / "shards", [[0]])
    root = write_folders(tmp_path / "data", {"a": 1})
    with pytest.raises(DataError, match="mixes shards, folders and CIFAR"):
        open_pictures(f"{urls}::{root}")


def test_digests_tell_sets_apart(tmp_path: Path) -> None:
    one = write_folders(tmp_path / "one", {"a": 2, "b": 1})
    same = write_folders(tmp_path / "same", {"a": 2, "b": 1})
    other = write_folders(tmp_path / "other", {"a": 2, "c": 1})
    digests = [open_pictures(str(path)).digest for path in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]
