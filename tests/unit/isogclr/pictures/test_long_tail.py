"""The long-tailed subset: the paper's sizes, a seed that decides, a file that says what was kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isogclr.errors import ConfigError, DataError
from isogclr.pictures import LongTail, keep_long_tail, long_tail_sizes, open_pictures
from support.picture_sets import write_folders, write_shards

CLASSES = tuple(map(str, range(10)))
LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 200))


def test_the_papers_sizes() -> None:
    """Table of the paper's appendix: 12,406 pictures of CIFAR-10 (5000 … 50) and 10,847 of CIFAR-100 (500 … 5)."""
    ten, hundred = long_tail_sizes([5000] * 10, 100), long_tail_sizes([500] * 100, 100)
    assert ten == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert (sum(ten), sum(hundred)) == (12_406, 10_847)
    assert (hundred[0], hundred[-1]) == (500, 5)


def test_that_many_of_each_class_are_kept() -> None:
    rows = keep_long_tail(LABELS, CLASSES, 20, seed=3)
    assert np.bincount(LABELS[rows]).tolist() == long_tail_sizes([200] * 10, 20)
    assert rows.tolist() == sorted(set(rows.tolist()))


def test_the_seed_decides() -> None:
    """The numbers are those of the first release: the choice must never change."""
    first, again, other = (keep_long_tail(LABELS, CLASSES, 20, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert len(first) == len(other)
    assert not np.array_equal(first, other)
    tail = keep_long_tail(np.repeat([0, 1], 100), ("a", "b"), 25, seed=7)
    assert tail[100:].tolist() == [107, 113, 121, 178]


def test_an_imbalance_of_one_keeps_all_of_balanced_data() -> None:
    assert len(keep_long_tail(LABELS, CLASSES, 1, seed=0)) == len(LABELS)


def test_the_same_pictures_stay_at_the_head_when_more_are_cut() -> None:
    """Kept at 100 is a part of kept at 10: studies over imbalance share pictures."""
    assert set(keep_long_tail(LABELS, CLASSES, 100, 5)) < set(keep_long_tail(LABELS, CLASSES, 10, 5))


def test_rows_that_are_no_pictures_are_never_kept() -> None:
    labels = np.where(np.arange(len(LABELS)) % 3 == 0, -1, LABELS)
    assert (labels[keep_long_tail(labels, CLASSES, 5, 0)] >= 0).all()


def test_a_class_that_is_smaller_than_its_share_keeps_all() -> None:
    assert long_tail_sizes([100, 3, 100], 4) == [100, 3, 25]


@pytest.mark.parametrize("imbalance", [0.99, 0.0, -3, float("nan"), float("inf")])
def test_an_imbalance_below_one(imbalance: float) -> None:
    with pytest.raises(ConfigError, match=r"--imbalance is .*, expected 1 or more"):
        keep_long_tail(LABELS, CLASSES, imbalance, 0)


def test_an_imbalance_that_would_empty_a_class() -> None:
    with pytest.raises(DataError, match="would leave no picture of 1 classes, like 9: the largest class has 200"):
        keep_long_tail(LABELS, CLASSES, 201, 0)


def test_it_needs_labels_and_two_classes(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--imbalance needs the class of every picture"):
        LongTail.of(open_pictures(write_shards(tmp_path / "none", [[None] * 3])), 2, 0)
    with pytest.raises(DataError, match="--imbalance needs two classes or more"):
        LongTail.of(open_pictures(write_shards(tmp_path / "one", [[0] * 3])), 2, 0)
    with pytest.raises(DataError, match="needs two classes or more, found one"):
        long_tail_sizes([4], 2)


class TestFile:
    @pytest.fixture
    def kept(self, tmp_path: Path) -> LongTail:
        root = write_folders(tmp_path / "data", {"a": 8, "b": 8, "c": 8})
        return LongTail.of(open_pictures(str(root)), 4, 11)

    def test_what_it_holds(self, kept: LongTail, tmp_path: Path) -> None:
        kept.save(tmp_path / "long_tail.json")
        body = json.loads((tmp_path / "long_tail.json").read_text())
        assert (body["imbalance"], body["seed"], body["classes"]) == (4, 11, ["a", "b", "c"])
        assert (body["sizes"], body["kept"]) == ([8, 8, 8], [8, 4, 2])
        assert len(body["rows"]) == 14
        assert LongTail.load(tmp_path / "long_tail.json") == kept
        assert kept.mask(24).sum() == 14

    def test_damage(self, kept: LongTail, tmp_path: Path) -> None:
        path = tmp_path / "long_tail.json"
        with pytest.raises(DataError, match="is no list of kept pictures"):
            LongTail.load(path)
        kept.save(path)
        text = path.read_text()
        path.write_text(text.replace('"rows": [0, ', '"rows": ['))
        with pytest.raises(DataError, match="was changed: its digest is"):
            LongTail.load(path)
        path.write_text(text[:-20])
        with pytest.raises(DataError, match="is no list of kept pictures"):
            LongTail.load(path)
        path.write_text("[]")
        with pytest.raises(DataError, match="is no list of kept pictures"):
            LongTail.load(path)
