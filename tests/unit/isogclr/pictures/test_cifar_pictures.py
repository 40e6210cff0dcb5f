"""CIFAR: rows, labels, names and pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isogclr.errors import DataError
from isogclr.pictures import Pictures, open_pictures
from isogclr.shard_index import ShardIndex
from support.picture_sets import (
    random_pixels,
    write_cifar10,
    write_cifar100,
)


def pixels(pictures: Pictures, row: int) -> np.ndarray:
    return np.asarray(pictures.read(row))


@pytest.mark.parametrize("with_index", [True, False])
def test_rows_labels_names_and_pictures(tmp_path: Path, with_index: bool) -> None:
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


def test_the_test_part(tmp_path: Path) -> None:
    folder = write_cifar100(tmp_path, random_pixels(4), [99, 3, 3, 0])
    found = open_pictures(str(folder), split="test")
    assert found.labels is not None
    assert found.labels.tolist() == [99, 3, 3, 0]
    assert found.name(1) == ("test", "1")


def test_more_classes_than_names(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path, random_pixels(10), [11] * 10)
    with pytest.raises(DataError, match="class 11 and 10 names"):
        open_pictures(str(folder))


def test_without_names_classes_are_numbers(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path, random_pixels(10), [0, 1] * 5)
    (folder / "batches.meta").unlink()
    assert open_pictures(str(folder)).classes == ("0", "1")
