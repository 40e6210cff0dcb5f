"""Pictures in shards: rows, labels, names and pictures; what is missing or damaged."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

import numpy as np
import pytest

from isogclr.demo_data import TEST_DATA
from isogclr.errors import DataError, ShardIndexError, ShardWarning
from isogclr.pictures import Pictures, needed_labels, open_pictures
from isogclr.shard_index import ShardIndex
from support.picture_sets import (
    add,
    encoded,
    picture,
    write_shards,
)


def pixels(pictures: Pictures, row: int) -> np.ndarray:
    return np.asarray(pictures.read(row))


@pytest.mark.parametrize("with_index", [True, False])
def test_rows_labels_names_and_pictures(tmp_path: Path, with_index: bool) -> None:
    urls = write_shards(tmp_path / "data", [[2, None], [0, 2, 2]])
    index = ShardIndex.build(urls, tmp_path / "index") if with_index else None
    found = open_pictures(urls, index)
    assert found.labels is not None
    assert found.labels.tolist() == [2, -1, 0, 2, 2]
    assert found.classes == ("0", "1", "2")
    assert found.positions().tolist() == [0, 1, 2, 3, 4]
    assert found.name(3) == ("001.tar", "0001")
    assert np.array_equal(pixels(found, 3), np.asarray(picture(3)))


def test_without_labels(tmp_path: Path) -> None:
    found = open_pictures(write_shards(tmp_path / "data", [[None, None]]))
    assert found.labels is None
    assert found.classes is None
    assert len(found) == 2


def test_compressed_ones(tmp_path: Path) -> None:
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


def test_samples_without_a_picture_have_rows_and_no_place(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        add(archive, "a.cls", b"1")
        add(archive, "b.cls", b" 3\n")
        add(archive, "b.jpg", encoded(0, kind="JPEG"))
        add(archive, "b.cls", b"4")  # the key again
    with pytest.warns(ShardWarning, match="1 samples repeat a key"):
        built = ShardIndex.build(str(tmp_path / "0.tar"), tmp_path / "index")
    for index in (None, built):
        found = open_pictures(str(tmp_path / "0.tar"), index)
        assert found.positions().tolist() == [1]
        assert found.labels is not None
        assert found.labels.tolist() == [-1, 3]
        assert found.rows == 2


@pytest.mark.parametrize("label", [b"cat", b"-1", b"1.5", b"99999999"])
def test_a_label_that_is_no_class(tmp_path: Path, label: bytes) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        add(archive, "a.png", encoded(0))
        add(archive, "a.cls", label)
    with pytest.raises(DataError, match=r"the label of a of .*0\.tar is .*, expected the number of a class"):
        _ = open_pictures(str(tmp_path / "0.tar")).labels


def test_a_shard_that_is_cut_short(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What comes in front of the cut is there; the rest is left out, and said."""
    write_shards(tmp_path / "data", [[1, 0, 1]])
    file = tmp_path / "data" / "000.tar"
    with tarfile.open(file) as archive:
        cut = archive.getmembers()[4].offset_data + 10
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.warns(ShardWarning, match="unexpected end of data"):
        built = ShardIndex.build(str(file), tmp_path / "index")
    found = open_pictures(str(file), built)
    assert found.positions().tolist() == [0, 1]
    assert np.array_equal(pixels(found, 1), np.asarray(picture(1)))
    assert "the pictures that follow the damage are left out" in caplog.text


def test_no_picture_at_all(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "0.tar", "w") as archive:
        add(archive, "a.txt", b"a caption")
    with pytest.raises(DataError, match="hold no picture"):
        open_pictures(str(tmp_path / "0.tar")).positions()


def test_a_shard_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ShardIndexError, match="does not exist"):
        open_pictures(str(tmp_path / "0.tar"))


def test_labels_from_a_field_of_the_metadata() -> None:
    found = open_pictures(TEST_DATA, label="group")
    assert found.classes is not None
    assert "animals-nature" in found.classes
    assert list(found.classes) == sorted(found.classes)
    labels = needed_labels(found, "the test")
    assert np.bincount(labels).min() > 0
    assert found.size == (48, 48)
