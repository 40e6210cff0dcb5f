"""Features of pictures by a frozen backbone: once, by the plain transform, or anew in each epoch, augmented."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from isogclr.errors import EvaluationError
from isogclr.evaluation.linear import Batches, LinearSettings, epoch_order
from isogclr.evaluation.metrics import require_finite

Transform = Callable[[Image.Image], Tensor]
_NO_EPOCH = -1


class ReadablePictures(Protocol):
    """What is asked of `isogclr.pictures.Pictures` here."""

    def read(self, row: int) -> Image.Image: ...

    def name(self, row: int) -> tuple[str, str]: ...


@dataclass(frozen=True)
class PicturePart:
    """Pictures by row, each with its class."""

    pictures: ReadablePictures
    rows: npt.NDArray[np.int64]
    labels: Tensor  # [N] int64, in the order of the rows

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Reading:
    """How pictures are read and where features are computed; nothing of it changes a result but by rounding."""

    device: torch.device
    workers: int = 0
    batch_size: int = 256


def plain_features(backbone: nn.Module, part: PicturePart, transform: Transform, reading: Reading) -> Tensor:
    """Features [N, D] of all pictures, in the order of the part, on the device."""
    places = [
        list(range(start, min(start + reading.batch_size, len(part))))
        for start in range(0, len(part), reading.batch_size)
    ]
    batches = _inputs(_Inputs(part, transform), [[(_NO_EPOCH, place) for place in one] for one in places], reading)
    features = torch.cat([_encode(backbone, inputs, reading.device) for inputs in batches])
    require_finite("features", features)
    return features


def augmented_batches(
    backbone: nn.Module, part: PicturePart, transform: Transform, settings: LinearSettings, reading: Reading
) -> Batches:
    """Batches of an epoch through a random transform, whose numbers follow from (seed, epoch, row).

    So the number of workers changes nothing, and the global generators stay as they are.
    """
    dataset, labels = _Inputs(part, transform, settings.seed), part.labels.to(reading.device)

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order = epoch_order(len(part), epoch, settings)
        inputs = _inputs(dataset, [[(epoch, place) for place in one] for one in order], reading)
        for places, one in zip(order, inputs, strict=True):
            features = _encode(backbone, one, reading.device)
            require_finite("training features", features)
            yield features, labels[torch.as_tensor(places, device=labels.device)]

    return batches


def augmentation(image_size: int, to_input: Sequence[Any]) -> Transform:
    """Random resized crop and flip, with torchvision's defaults, as the authors' program has it.

    Args:
        to_input: the transforms that turn a picture into an input, `Preprocessing.to_input()`.
    """
    from torchvision.transforms import v2  # noqa: PLC0415 (slow to import)

    transform: Transform = v2.Compose([v2.RandomResizedCrop(image_size), v2.RandomHorizontalFlip(), *to_input])
    return transform


class _Inputs(Dataset[Tensor | str]):
    """By (epoch, place). A picture that can not be read is a text that says why: a loader garbles errors."""

    def __init__(self, part: PicturePart, transform: Transform, seed: int = 0) -> None:
        self._part = part
        self._transform = transform
        self._seed = seed

    def __getitem__(self, item: tuple[int, int]) -> Tensor | str:
        epoch, place = item
        row = int(self._part.rows[place])
        try:
            picture = self._part.pictures.read(row)
        except Exception as error:  # decoders raise what they like
            shard, key = self._part.pictures.name(row)
            return f"picture {key} of {shard} can not be read: {type(error).__name__}: {error}"
        if epoch == _NO_EPOCH:
            return self._transform(picture)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(_seed(self._seed, epoch, row))
            return self._transform(picture)


def _inputs(dataset: _Inputs, batches: Iterable[list[tuple[int, int]]], reading: Reading) -> Iterator[Tensor]:
    loader = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=reading.workers,
        collate_fn=_stack,
        pin_memory=reading.device.type == "cuda",
        generator=torch.Generator(),  # the loader draws a seed for its workers: not from the global one
    )
    for inputs in loader:
        if isinstance(inputs, str):
            raise EvaluationError(f"{inputs}; copy or fetch it again")
        yield inputs


def _stack(inputs: list[Tensor | str]) -> Tensor | str:
    tensors = []
    for one in inputs:
        if isinstance(one, str):
            return one
        tensors.append(one)
    return torch.stack(tensors)


def _encode(backbone: nn.Module, inputs: Tensor, device: torch.device) -> Tensor:
    with torch.no_grad():
        features: Tensor = backbone(inputs.to(device, non_blocking=True))
    return features.float()


def _seed(*parts: int) -> int:
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
