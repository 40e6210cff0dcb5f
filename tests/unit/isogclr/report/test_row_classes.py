"""Classes by row, from the labels of a data set."""

from __future__ import annotations

import numpy as np

from isogclr.report.row_classes import make_labels


def test_named_classes() -> None:
    labels = make_labels(np.array([1, -1, 0, 2]), ("cat", "dog", "emu", "never"))
    assert labels is not None
    assert [labels.name(row) for row in range(4)] == ["dog", None, "cat", "emu"]
    assert len(labels.names) == 4


def test_numbers_without_names() -> None:
    """They may be any; classes that no row has do not count."""
    labels = make_labels(np.array([900_000, 7, -1, 7]), None)
    assert labels is not None
    assert labels.names == ("7", "900000")
    assert labels.by_row.tolist() == [1, 0, -1, 0]


def test_more_numbers_than_names() -> None:
    labels = make_labels(np.array([0, 5]), ("cat", "dog"))
    assert labels is not None
    assert labels.names == ("0", "5")


def test_nothing_is_labelled() -> None:
    assert make_labels(None, None) is None
    assert make_labels(np.array([-1, -1]), ("cat",)) is None
    assert make_labels(np.zeros(0, np.int64), ("cat",)) is None


def test_rows_beyond_the_labels() -> None:
    """The index may have grown since."""
    labels = make_labels(np.array([0, 1]), ("cat", "dog"))
    assert labels is not None
    assert labels.of([1, 2, 0]).tolist() == [1, -1, 0]
    assert labels.name(9) is None
