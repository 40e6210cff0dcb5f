"""Features of pictures: in order, the same for any number of workers, augmented by (seed, epoch, row)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms import v2

from isogclr.errors import EvaluationError
from isogclr.evaluation.linear import LinearSettings
from isogclr.evaluation.picture_features import (
    PicturePart,
    Reading,
    augmentation,
    augmented_batches,
    plain_features,
)

TO_INPUT = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]
SETTINGS = LinearSettings(epochs=2, batch_size=4, seed=5)


class Made:
    """Pictures from their row; one of them is damaged."""

    def __init__(self, damaged: int = -1) -> None:
        self._damaged = damaged

    def read(self, row: int) -> Image.Image:
        if row == self._damaged:
            raise OSError("image file is truncated")
        return Image.fromarray(np.random.default_rng(row).integers(0, 256, (8, 8, 3), dtype=np.uint8))

    def name(self, row: int) -> tuple[str, str]:
        return "shard-7.tar", f"key{row}"


def part(damaged: int = -1) -> PicturePart:
    rows = np.array([30, 10, 20, 40, 50, 60, 70, 80, 90, 11])
    return PicturePart(Made(damaged), rows, torch.from_numpy(rows % 3))


def plain(picture: Image.Image) -> Tensor:
    found: Tensor = v2.Compose(TO_INPUT)(picture)
    return found


def reading(workers: int = 0, batch_size: int = 4) -> Reading:
    return Reading(torch.device("cpu"), workers, batch_size)


def epoch_of(number: int, workers: int = 0, settings: LinearSettings = SETTINGS) -> tuple[Tensor, Tensor]:
    batches = augmented_batches(nn.Flatten(), part(), augmentation(8, TO_INPUT), settings, reading(workers))
    features, labels = zip(*batches(number), strict=True)
    return torch.cat(features), torch.cat(labels)


def test_features_are_in_the_order_of_the_rows() -> None:
    expected = torch.stack([plain(part().pictures.read(int(row))).flatten() for row in part().rows])
    for batch_size in (1, 4, 99):
        found = plain_features(nn.Flatten(), part(), plain, reading(batch_size=batch_size))
        assert torch.equal(found, expected)


@pytest.mark.slow
def test_workers_change_nothing() -> None:
    assert torch.equal(
        plain_features(nn.Flatten(), part(), plain, reading(workers=2)),
        plain_features(nn.Flatten(), part(), plain, reading()),
    )
    (alone, labels), (shared, same) = epoch_of(1), epoch_of(1, workers=2)
    assert torch.equal(alone, shared)
    assert torch.equal(labels, same)


def test_augmentation_follows_from_seed_epoch_and_row() -> None:
    state = torch.get_rng_state()
    first, labels = epoch_of(0)
    again, _ = epoch_of(0)
    assert torch.equal(first, again)
    assert torch.equal(state, torch.get_rng_state())
    assert sorted(labels.tolist()) == sorted((part().rows % 3).tolist())
    second, _ = epoch_of(1)
    other, _ = epoch_of(0, settings=LinearSettings(epochs=2, batch_size=4, seed=6))
    pictures = {tuple(one.tolist()) for one in first}
    assert not pictures & {tuple(one.tolist()) for one in second}  # another epoch, other crops
    assert not pictures & {tuple(one.tolist()) for one in other}
    assert not pictures & {tuple(plain(part().pictures.read(int(row))).flatten().tolist()) for row in part().rows}


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_damaged_picture_is_named(workers: int) -> None:
    with pytest.raises(EvaluationError) as caught:
        plain_features(nn.Flatten(), part(damaged=50), plain, reading(workers))
    assert str(caught.value) == (
        "picture key50 of shard-7.tar can not be read: OSError: image file is truncated; copy or fetch it again"
    )


def test_features_that_are_not_finite() -> None:
    class Broken(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs.flatten(1) / 0

    with pytest.raises(EvaluationError, match="10 of 10 features are not finite"):
        plain_features(Broken(), part(), plain, reading())
    batches = augmented_batches(Broken(), part(), augmentation(8, TO_INPUT), SETTINGS, reading())
    with pytest.raises(EvaluationError, match="4 of 4 training features are not finite"):
        next(batches(0))
