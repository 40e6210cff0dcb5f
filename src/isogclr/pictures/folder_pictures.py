"""Pictures in folders, one for each class: ROOT/CLASS/*.png."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from isogclr.packed_texts import PackedTexts
from isogclr.pictures.picture_set import PlacedPictures, digest_of, rows_of, shard_names
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.class_folders import picture_names
from isogclr.shard_index.picture_listing import list_samples


class FolderPictures(PlacedPictures):
    """A class is a folder that holds pictures; its name is its path below the root, classes are in sorted order.

    Pictures that lie in the root itself have no labels.

    Args:
        root: the folder that was named.
        shards: the folders that hold pictures.
        index: see `Pictures`.
    """

    def __init__(self, root: str, shards: Sequence[str], index: ShardIndex | None) -> None:
        names = [picture_names(folder) for folder in shards]
        counts = [len(one) for one in names]
        if index is None:
            order = np.arange(sum(counts))
            digest = digest_of(shards, [list_samples(folder).digest for folder in shards])
        else:
            order = np.concatenate([rows_of(*one, index) for one in zip(shards, names, strict=True)])
            digest = index.content_digest([index.find(folder) for folder in shards])
        is_flat = [Path(folder) for folder in shards] == [Path(root)]
        labels = None if is_flat else np.repeat(np.arange(len(shards)), counts)
        classes = None if is_flat else tuple(Path(folder).relative_to(root).as_posix() for folder in shards)
        super().__init__(shards, index, order, digest, labels, classes)
        self._ids = shard_names(shards, index)
        self._ends = np.cumsum(counts)
        self._names = PackedTexts(name for one in names for name in one)

    def name(self, row: int) -> tuple[str, str]:
        place = self.place(row)
        return self._ids[self._folder(place)], self._names[place]

    def _folder(self, place: int) -> int:
        return int(np.searchsorted(self._ends, place, side="right"))

    def read(self, row: int) -> Image.Image:
        place = self.place(row)
        with Image.open(os.path.join(self.shards[self._folder(place)], self._names[place])) as opened:  # noqa: PTH118
            return opened.convert("RGB")
