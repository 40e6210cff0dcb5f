"""Labels where they are needed: complete, of two classes or more, in the numbering of the training data."""

from __future__ import annotations

from pathlib import Path

import pytest

from isogclr.errors import DataError
from isogclr.pictures import labels_in, needed_labels, open_pictures
from support.picture_sets import write_folders, write_shards


def test_no_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"kNN needs the class of every picture, and .* has none: use a folder"):
        needed_labels(open_pictures(write_shards(tmp_path, [[None]])), "kNN")


def test_some_labels_are_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"2 of 4 have none, the first is 0001 of 000\.tar"):
        needed_labels(open_pictures(write_shards(tmp_path, [[0, None], [1, None]])), "kNN")


def test_one_class_only(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="needs two classes or more, and all 3 pictures"):
        needed_labels(open_pictures(write_shards(tmp_path / "shards", [[4, 4, 4]])), "kNN")
    root = write_folders(tmp_path / "data", {"inner/cat": 2})
    with pytest.raises(DataError, match="name the folder that holds the folders of the classes"):
        needed_labels(open_pictures(str(root)), "kNN")


def test_a_test_set_is_numbered_as_the_training_set(tmp_path: Path) -> None:
    test = open_pictures(str(write_folders(tmp_path / "test", {"zebra": 1, "cat": 2})))
    assert needed_labels(test, "kNN").tolist() == [0, 0, 1]
    assert labels_in(test, ["ape", "cat", "dog", "zebra"], "kNN").tolist() == [1, 1, 3]


def test_a_class_that_was_not_trained_on(tmp_path: Path) -> None:
    test = open_pictures(str(write_folders(tmp_path / "test", {"zebra": 1, "cat": 2})))
    with pytest.raises(DataError, match="1 classes that the training data has not, like zebra; that one has 1"):
        labels_in(test, ["cat"], "kNN")
