"""CIFAR-10 and CIFAR-100, mapped from the files of their official archives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from isogclr.errors import DataError
from isogclr.pictures.picture_set import PlacedPictures, digest_of, rows_of, shard_names
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.cifar_batches import class_names, find_layout, read_batch


class CifarPictures(PlacedPictures):
    """One part of CIFAR, the training or the test pictures.

    Args:
        shards: its files.
        index: see `Pictures`.
    """

    def __init__(self, shards: Sequence[str], index: ShardIndex | None) -> None:
        self._batches = [read_batch(Path(file)) for file in shards]
        counts = [len(batch.labels) for batch in self._batches]
        if index is None:
            order = np.arange(sum(counts))
            digest = digest_of(shards, [batch.digest() for batch in self._batches])
        else:
            keys = [list(map(str, range(count))) for count in counts]
            order = np.concatenate([rows_of(*one, index) for one in zip(shards, keys, strict=True)])
            digest = index.content_digest([index.find(file) for file in shards])
        labels = np.concatenate([batch.labels for batch in self._batches])
        super().__init__(shards, index, order, digest, labels, _classes(Path(shards[0]).parent, labels.max()))
        self._ids = shard_names(shards, index)
        self._ends = np.cumsum(counts)

    def _find(self, row: int) -> tuple[int, int]:
        """The file, and the place in it."""
        place = self.place(row)
        file = int(np.searchsorted(self._ends, place, side="right"))
        return file, place - (int(self._ends[file - 1]) if file else 0)

    def name(self, row: int) -> tuple[str, str]:
        file, place = self._find(row)
        return self._ids[file], str(place)

    def read(self, row: int) -> Image.Image:
        file, place = self._find(row)
        return Image.fromarray(np.ascontiguousarray(self._batches[file].pixels[place].transpose(1, 2, 0)))


def _classes(folder: Path, largest: int) -> tuple[str, ...]:
    found = find_layout(folder)
    assert found is not None
    names = class_names(*found)
    if names is None:
        return tuple(map(str, range(largest + 1)))
    if largest >= len(names):
        raise DataError(
            f"{folder} has pictures of class {largest} and {len(names)} names of classes: unpack it again"
        )
    return names
