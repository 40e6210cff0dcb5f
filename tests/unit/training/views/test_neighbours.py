"""kNN accuracy in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from isogclr.errors import DataError
from isogclr.losses import VIEW_LOSSES
from isogclr.pictures import open_pictures
from isogclr.pictures.preprocessing import Preprocessing
from support.picture_sets import write_folders
from training.open_clip_bridge import Place
from training.randomness import capture, restore
from training.settings import NeighbourSettings, ViewModelSettings
from training.views.neighbours import NeighbourEvaluation, TrainingPart
from training.views.view_model import create_view_model

PLACE = Place(torch.device("cpu"), rank=0, local_rank=0, world_size=1)
COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def write_colours(root: Path, names: dict[str, str], count: int = 4) -> Path:
    """Pictures of one colour each, by the class that they are said to be of."""
    for name, colour in names.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            dim = [max(0, value - 20 * number) for value in COLOURS[colour]]
            Image.new("RGB", (8, 8), tuple(dim)).save(root / name / f"{number}.png")
    return root


class Said:
    """What a log of metrics was told."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def suite(self, epoch: int, values: dict[str, float]) -> None:
        self.values.append((epoch, values))


def evaluation(train: Path, test: Path, every: int = 1, kept: list[int] | None = None) -> NeighbourEvaluation:
    state = capture(PLACE.device)
    model = create_view_model(ViewModelSettings("tiny", "cifar", "8", 8, "fp32"), VIEW_LOSSES["simclr"], PLACE, 0)
    restore(state, PLACE.device)
    part = TrainingPart(open_pictures(str(train)), None if kept is None else np.array(kept))
    settings = NeighbourSettings(str(test), every, workers=0)
    return NeighbourEvaluation(settings, "cls", model, Preprocessing(8), PLACE, lambda: part)


def test_classes_are_told_apart_by_name(tmp_path: Path) -> None:
    """The test set lacks a class, and so numbers the others differently."""
    train = write_colours(tmp_path / "train", {name: name for name in COLOURS})
    test = write_colours(tmp_path / "test", {"red": "red", "green": "green"})
    said: Any = Said()
    assert evaluation(train, test).run(1, 5, said) == {"knn_top1": 1.0}
    assert said.values == [(1, {"knn_top1": 1.0})]
    wrong = write_colours(tmp_path / "wrong", {"red": "green", "green": "red"})
    assert evaluation(train, wrong).run(1, 5, said) == {"knn_top1": 0.0}


def test_only_pictures_that_are_trained_on_vote(tmp_path: Path) -> None:
    train = write_colours(tmp_path / "train", {"blue": "blue", "red": "red"})
    said: Any = Said()
    assert evaluation(train, train).run(1, 5, said) == {"knn_top1": 1.0}
    assert evaluation(train, train, kept=[0, 1, 2, 3]).run(1, 5, said) == {"knn_top1": 0.5}  # all of them blue


def test_every_nth_epoch_and_the_last(tmp_path: Path) -> None:
    train = write_colours(tmp_path / "train", {name: name for name in COLOURS})
    measure, said = evaluation(train, train, every=3), Said()
    measured = [epoch for epoch in range(9) if measure.run(epoch, 8, said)]  # type: ignore[arg-type]
    assert measured == [0, 3, 6, 8]


def test_training_draws_the_same_numbers_as_without(tmp_path: Path) -> None:
    train = write_colours(tmp_path / "train", {name: name for name in COLOURS})
    measure = evaluation(train, train)
    before = capture(PLACE.device)
    said: Any = Said()
    measure.run(1, 1, said)
    assert capture(PLACE.device) == before


def test_labels_are_looked_for_before_anything_is_trained(tmp_path: Path) -> None:
    train = write_folders(tmp_path / "train", {"ant": 2, "bee": 2})
    one = write_folders(tmp_path / "one", {"ant": 2})
    with pytest.raises(DataError, match="--val-data needs two classes or more"):
        evaluation(train, one)
    with pytest.raises(DataError, match=r"kNN accuracy \(--val-data\) needs two classes or more"):
        evaluation(one, train).check()
    with pytest.raises(DataError, match="classes that the training data has not"):
        evaluation(train, write_folders(tmp_path / "other", {"cat": 2, "dog": 2})).check()
