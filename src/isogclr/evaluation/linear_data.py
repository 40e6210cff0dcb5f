"""The pictures of a linear evaluation: a training part, perhaps with a long tail, and a test part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from isogclr.errors import ConfigError, DataError
from isogclr.evaluation.data_folders import Located
from isogclr.evaluation.picture_features import PicturePart
from isogclr.evaluation.suites import LINEAR, LINEAR_DATASETS, Dataset
from isogclr.pictures import LongTail, Pictures, labels_in, needed_labels, open_pictures
from isogclr.pictures.cifar_pictures import CifarPictures
from isogclr.pictures.long_tail import FILE_NAME, check_imbalance

_PURPOSE = "a linear evaluation"
_PAPERS_IMBALANCE = 100
_TAIL = "-lt"
_PART = re.compile(r"train(ing)?|.*\.tar(\..*)?|.*[{:].*")  # a path ends in these, but no data set is called so


@dataclass(frozen=True)
class PictureSets:
    """Both sets, opened once for all checkpoints."""

    data: str
    train: Pictures
    test: Pictures


@dataclass(frozen=True)
class LinearData:
    """What one checkpoint is measured on.

    Attributes:
        sizes: training pictures of every class.
        imbalance: 1 if the training part is used whole.
    """

    train: PicturePart
    test: PicturePart
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    imbalance: float
    located: Located


def open_sets(data: str, test_data: str | None, label: str) -> PictureSets:
    """Both parts, with a label for every picture. CIFAR's own test part is the default; other data has none."""
    train = open_pictures(data, split="train", label=label)
    if test_data is None and not isinstance(train, CifarPictures):
        raise ConfigError([f"{data} says nothing of a test part, as CIFAR does: name one with --val-data"])
    needed_labels(train, _PURPOSE)
    return PictureSets(data, train, open_pictures(test_data or data, split="test", label=label))


def choose_data(sets: PictureSets, imbalance: float, seed: int, name: str | None, run: Path | None) -> LinearData:
    """The training part with the given imbalance, and the test part as it is.

    Args:
        seed: which pictures a long tail keeps.
        name: of the data set in the tables, without a word for its tail; None to take it from the data.
        run: folder of the checkpoint's run: what its long tail kept is compared with what is kept here.
    """
    check_imbalance(imbalance)
    train, test = sets.train, sets.test
    classes = train.classes
    assert classes is not None
    labels, rows, kept = needed_labels(train, _PURPOSE), train.positions(), "all"
    if imbalance > 1:
        tail = LongTail.of(train, imbalance, seed)
        _check_same(tail, run)
        rows, kept = tail.row_array, tail.digest
    test_rows, test_labels = test.positions(), labels_in(test, classes, _PURPOSE)
    known = _dataset(_name(sets, name, imbalance))
    if known.classes not in (None, len(classes)):
        raise DataError(
            f"{sets.data} has {len(classes):,} classes, and {known.title} has {known.classes:,}: name it otherwise"
        )
    return LinearData(
        train=PicturePart(train, rows, torch.from_numpy(labels[rows])),
        test=PicturePart(test, test_rows, torch.from_numpy(test_labels[test_rows])),
        classes=classes,
        sizes=tuple(np.bincount(labels[rows], minlength=len(classes)).tolist()),
        imbalance=imbalance,
        located=Located(
            dataset=known,
            task=LINEAR,
            benchmark_name=known.name,
            folder=Path(sets.data),
            images=len(test_rows),
            shards=0,
            stamp=f"{train.digest} {kept} {test.digest}",
        ),
    )


def _check_same(tail: LongTail, run: Path | None) -> None:
    """A run that has a long tail of the same kind must have kept the same pictures."""
    path = None if run is None else run / FILE_NAME
    if path is None or not path.is_file():
        return
    trained = LongTail.load(path)
    same_kind = (trained.imbalance, trained.seed, trained.sizes) == (tail.imbalance, tail.seed, tail.sizes)
    if same_kind and trained.rows != tail.rows:
        raise DataError(
            f"the long tail of this data is not the one in {path}: as many pictures per class, but others; give "
            "the data as it was in training, or --imbalance 1 for all of it"
        )


def _name(sets: PictureSets, chosen: str | None, imbalance: float) -> str:
    """Of the data set, with what the paper calls a long tail behind it; CIFAR is known by its layout."""
    if chosen is not None:
        name = chosen.removesuffix(_TAIL)
    elif isinstance(sets.train, CifarPictures):
        name = f"cifar{len(sets.train.classes or ())}"
    else:
        parts = [part for part in Path(sets.data).parts if not _PART.fullmatch(part)]
        name = parts[-1] if parts and parts[-1] != "/" else "pictures"
    if imbalance == 1:
        return name
    return f"{name}{_TAIL}" if imbalance == _PAPERS_IMBALANCE else f"{name}{_TAIL}{imbalance:g}"


def _dataset(name: str) -> Dataset:
    return LINEAR_DATASETS.get(name) or Dataset(re.sub(r"[^\w.-]", "-", name), title=name, task=LINEAR)
