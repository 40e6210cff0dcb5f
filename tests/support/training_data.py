"""Small image-text shards for tests of the training data, and transforms that are quick and tell samples apart."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from isogclr.shard_index import ShardIndex
from support.shard_writing import Member, write_shard
from training.data.epoch import EpochBatches, TrainData
from training.data.image_text import PairInputs
from training.data.position import Batch
from training.settings import DataSettings

BROKEN = b"\xff\xd8\xff this is no JPEG"


def picture(number: int) -> bytes:
    """A tiny lossless image whose first pixel is its number."""
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[..., 0], pixels[..., 1] = number % 256, number // 256
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write_shards(
    folder: Path, sizes: Sequence[int], broken: Iterable[int] = (), without_caption: Iterable[int] = ()
) -> str:
    """Shards of so many samples, numbered throughout; returns the brace pattern."""
    broken, without_caption = set(broken), set(without_caption)
    number = 0
    for shard, size in enumerate(sizes):
        members: list[Member] = []
        for _ in range(size):
            members.append((f"{number:06d}.png", BROKEN if number in broken else picture(number)))
            if number not in without_caption:
                members.append((f"{number:06d}.txt", f"caption {number}".encode()))
            members.append((f"{number:06d}.json", b"{}"))
            number += 1
        write_shard(folder / f"{shard:05d}.tar", members)
    return str(folder / f"{{00000..{len(sizes) - 1:05d}}}.tar")


def plain_transform(image: Image.Image) -> Tensor:
    """The number of the sample, as a tensor of one pixel."""
    pixel = np.asarray(image.convert("RGB"))[0, 0].astype(np.int64)
    return torch.tensor([int(pixel[0]) + 256 * int(pixel[1])], dtype=torch.float32)


def random_transform(image: Image.Image) -> Tensor:
    """The number, and a draw from each generator that augmentations use."""
    import random  # noqa: PLC0415

    draws = [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002 (the global one)
    return torch.cat([plain_transform(image), torch.tensor(draws)])


def tokenize(text: Any) -> Tensor:
    """As open_clip's tokenizers: a row of numbers for each text."""
    texts = [text] if isinstance(text, str) else text
    return torch.tensor([[int(one.split()[-1]) if one[-1].isdigit() else -1] for one in texts])


def open_data(
    config: DataSettings,
    index: ShardIndex | None,
    rank: int = 0,
    world_size: int = 1,
    transform: Any = plain_transform,
) -> TrainData:
    return TrainData.open(config, index, rank, world_size, PairInputs(transform, tokenize))


def read(epoch: EpochBatches) -> list[Batch]:
    """All batches, counted."""
    batches = list(epoch)
    assert len(batches) == epoch.batches
    return batches


def assert_same(found: Sequence[Batch], expected: Sequence[Batch]) -> None:
    """Bit for bit, positions included."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.rows, other.rows)
        assert len(one.inputs) == len(other.inputs)
        assert all(map(torch.equal, one.inputs, other.inputs))
        assert (one.worker, one.drawn) == (other.worker, other.drawn)


def numbers(batches: Iterable[Batch]) -> list[int]:
    """The samples in order; checks that image, text and row belong together."""
    found = []
    for batch in batches:
        images, texts = batch.inputs
        images = images[:, 0].to(torch.int64)
        assert torch.equal(images, texts[:, 0])
        found += images.tolist()
    return found
