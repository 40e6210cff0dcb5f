"""Pictures in folders: rows, labels, names and pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isogclr.errors import DataError, ShardIndexError
from isogclr.pictures import Pictures, open_pictures
from isogclr.shard_index import ShardIndex
from support.picture_sets import (
    encoded,
    picture,
    write_folders,
)


def pixels(pictures: Pictures, row: int) -> np.ndarray:
    return np.asarray(pictures.read(row))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_folders(tmp_path / "data", {"ape": 2, "zoo/ü": 3})


@pytest.mark.parametrize("with_index", [True, False])
def test_rows_labels_names_and_pictures(root: Path, tmp_path: Path, with_index: bool) -> None:
    index = ShardIndex.build(str(root), tmp_path / "index") if with_index else None
    found = open_pictures(str(root), index)
    assert found.classes == ("ape", "zoo/ü")
    assert found.positions().tolist() == [0, 1, 2, 3, 4]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 0, 1, 1, 1]
    assert found.name(3) == ("ü", "001.png")
    assert found.size == (8, 8)
    assert (found.rows, len(found)) == (5, 5)
    for row in range(5):
        assert np.array_equal(pixels(found, row), np.asarray(picture(row)))
    assert [row for row, _ in found.scan()] == [0, 1, 2, 3, 4]


def test_rows_are_those_of_the_index(root: Path, tmp_path: Path) -> None:
    ShardIndex.build(str(root), tmp_path / "index")
    (root / "ape" / "-.png").write_bytes(encoded(77))
    index = ShardIndex.build(str(root), tmp_path / "index")
    found = open_pictures(str(root), index)
    assert found.positions().tolist() == [5, 0, 1, 2, 3, 4]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 0, 1, 1, 1, 0]
    assert np.array_equal(pixels(found, 5), np.asarray(picture(77)))
    assert index.locate([5]) == [found.name(5)]


def test_an_index_that_is_behind(root: Path, tmp_path: Path) -> None:
    index = ShardIndex.build(str(root), tmp_path / "index")
    (root / "ape" / "new.png").write_bytes(encoded(0))
    with pytest.raises(DataError, match=r"ape has 3 pictures, and the index has 2: .*isogclr index build"):
        open_pictures(str(root), index)
    (root / "ape" / "000.png").unlink()
    with pytest.raises(ShardIndexError, match=r"no key 'new\.png'"):
        open_pictures(str(root), index)


def test_pictures_of_one_folder_have_no_labels(root: Path) -> None:
    found = open_pictures(str(root / "ape"))
    assert found.labels is None
    assert found.classes is None
    assert len(found) == 2


def test_a_row_that_is_no_picture(root: Path) -> None:
    with pytest.raises(DataError, match="row 5 is no picture"):
        open_pictures(str(root)).read(5)
    with pytest.raises(DataError, match="row -1 is no picture"):
        open_pictures(str(root)).read(-1)


def test_pictures_of_all_modes_become_rgb(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"a": 0})
    for mode in ("L", "P", "RGBA", "CMYK", "1"):
        picture(0).convert(mode).save(root / "a" / f"{mode}.tiff")
    found = open_pictures(str(root))
    assert {image.mode for _, image in found.scan()} == {"RGB"}
