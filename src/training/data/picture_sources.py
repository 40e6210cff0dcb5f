"""Sources of pictures: folders and CIFAR by position, shards in open_clip's order; whole sets or some rows."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from isogclr.errors import ConfigError, DataError
from isogclr.pictures import LongTail, Pictures
from isogclr.pictures.shard_pictures import ShardPictures
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.sample_keys import IMAGE_SUFFIXES
from training.data.epoch import TrainData
from training.data.rest_of_epoch import Rest, how_many
from training.data.sample import SampleFiles
from training.data.shards import ShardSource
from training.data.source import Samples, Source
from training.data.tables import Positions, PositionSource
from training.data.tally import Tally
from training.settings import DataSettings

_SMALLEST_BATCH = 2


class PictureFiles:
    """The picture of a sample of a shard; whatever else it has is not read."""

    parts = "image"
    example = "000001.jpg and 000001.cls"
    complaint = "has an image; found the extensions {found}, expected one of " + ", ".join(
        f".{extension}" for extension in IMAGE_SUFFIXES
    )

    def choose(self, sample: Mapping[str, Any]) -> bytes | None:
        found: bytes | None = next((sample[extension] for extension in IMAGE_SUFFIXES if extension in sample), None)
        return found

    def decode(self, content: bytes) -> Image.Image:
        with Image.open(io.BytesIO(content)) as opened:
            return opened.convert("RGB")


class PictureSource(PositionSource):
    """Pictures that can be read in any order.

    Args:
        pictures: of folders or of CIFAR.
        kept: a subset of them; None takes all.
    """

    files: SampleFiles = PictureFiles()

    def __init__(self, pictures: Pictures, config: DataSettings, kept: LongTail | None = None) -> None:
        order = pictures.positions()
        if kept is not None:
            order = order[kept.mask(pictures.rows)[order]]
        digest = pictures.digest if kept is None else kept.digest
        super().__init__(len(order), config.num_samples, config.batch_size, config.seed, digest)
        self.rows = pictures.rows
        self._pictures = pictures
        self._order = order

    def _rows_of(self, positions: Positions) -> npt.NDArray[np.int64]:
        return self._order[positions]

    def _name(self, position: int) -> tuple[str, str]:
        return self._pictures.name(int(self._order[position]))

    def decode(self, content: int) -> Image.Image:
        return self._pictures.read(int(self._order[content]))


class KeptShardSource(ShardSource):
    """Shards of which only some rows are drawn.

    Args:
        kept: which.
    """

    def __init__(
        self, urls: Sequence[str], index: ShardIndex, files: SampleFiles, seed: int, kept: LongTail
    ) -> None:
        self._kept = kept.mask(index.number_of_rows)
        super().__init__(urls, index, files, seed)
        self.digest = kept.digest

    def samples_in(self, shard: int) -> int:
        ranges = self.index.row_ranges(shard)
        return sum(int(np.count_nonzero(self._kept[rows.start : rows.stop])) for rows in ranges)

    def read_shard(self, url: str, tally: Tally) -> Samples:
        with contextlib.closing(super().read_shard(url, tally)) as samples:
            yield from (sample for sample in samples if self._kept[sample.row])

    def rest(self, epoch: int, seen: npt.NDArray[np.bool_], num_samples: int) -> Rest:
        """What is not kept needs no visit, and is none."""
        left = super().rest(epoch, seen | ~self._kept, self.samples)
        visited = int(np.count_nonzero(seen & self._kept))
        return replace(left, total=how_many(left.total, visited, num_samples, self.samples))


def picture_source(pictures: Pictures, config: DataSettings, kept: LongTail | None = None) -> Source:
    """The source of a set of pictures that was opened with the index of the run."""
    if kept is not None and kept.data != pictures.digest:
        raise DataError(
            f"the list of kept pictures (--imbalance {kept.imbalance:g}, seed {kept.seed}) was made from other "
            f"data: digest {kept.data}, and that of {pictures.shards[0]} and its companions is {pictures.digest}; "
            "use the data that the run was begun with, or start a new run"
        )
    if not isinstance(pictures, ShardPictures):
        return PictureSource(pictures, config, kept)
    assert pictures.index is not None, "shards are trained on with an index"
    if kept is None:
        return ShardSource(pictures.shards, pictures.index, PictureFiles(), config.seed)
    return KeptShardSource(pictures.shards, pictures.index, PictureFiles(), config.seed, kept)


def open_picture_data(
    config: DataSettings,
    pictures: Pictures,
    inputs: Callable[[Any], tuple[Tensor, ...]],
    rank: int,
    world_size: int,
    pin_memory: bool = False,
    kept: LongTail | None = None,
) -> TrainData:
    """Training data of pictures: `TrainData.open` is open_clip's door, this is the other one.

    Pictures may differ in size, since a view is a crop that is resized.

    Args:
        inputs: from a picture to the inputs of the model, as `ViewInputs`.
        kept: the long-tailed subset, if there is one.
    """
    if config.batch_size < _SMALLEST_BATCH:
        raise ConfigError(
            [
                f"the batch size is {config.batch_size}, expected {_SMALLEST_BATCH} or more: a picture is told "
                "apart from the others of its batch, and batch norm needs two"
            ]
        )
    return TrainData.of(config, picture_source(pictures, config, kept), inputs, rank, world_size, pin_memory)
