"""Tables of image files and captions, and synthetic data: samples that are known by position.

The order is that of torch's DistributedSampler, dealt to workers batch by batch as torch's loader does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from isogclr.csv_table import read_table
from isogclr.errors import DataError
from isogclr.packed_texts import PackedTexts
from isogclr.shard_index import ShardIndex
from training.data.image_text import PairFiles
from training.data.rest_of_epoch import Rest, SeenRows, how_many
from training.data.sample import RawSample, SampleFiles
from training.data.source import Pass, Samples
from training.data.tally import Tally
from training.settings import DataSettings

Positions = npt.NDArray[np.int64]


class PositionSource:
    """Samples 0 … n − 1. What a sample is, and its row, is left to the classes below."""

    drops_last = False
    endless = False
    files: SampleFiles = PairFiles()

    def __init__(self, samples: int, num_samples: int | None, batch_size: int, seed: int, digest: str) -> None:
        self.samples = samples
        self.digest = digest
        self._num_samples = num_samples or samples
        self._batch_size = batch_size
        self._seed = seed

    def batches_per_epoch(self, num_samples: int, batch_size: int, world_size: int, workers: int) -> int:
        """Rounded down: the last samples of a rank are left out if they fill no batch."""
        return -(-num_samples // world_size) // batch_size

    def check_epoch(self, epoch: int, batch_size: int, world_size: int, workers: int) -> None:
        """Batches are dealt out whole."""

    def _permutation(self, epoch: int) -> Positions:
        generator = torch.Generator()
        generator.manual_seed(self._seed + epoch)
        found: Positions = torch.randperm(self.samples, generator=generator).numpy()
        return found

    def draw(self, which: Pass, tally: Tally) -> Samples:
        """Every `workers`-th batch of the rank. What is skipped there is filled from what follows."""
        rank, world_size, worker, workers = which.part
        own = -(-self._num_samples // world_size)
        # `resize` begins again at the front, as the sampler does.
        everything = np.resize(self._permutation(which.epoch), own * world_size)
        mine = everything[rank::world_size]
        batches = mine[: len(mine) // self._batch_size * self._batch_size].reshape(-1, self._batch_size)
        return self._samples(batches[worker::workers].reshape(-1))

    def rest(self, epoch: int, seen: npt.NDArray[np.bool_], num_samples: int) -> Rest:
        visited = int(np.count_nonzero(seen[self._rows_of(np.arange(self.samples))]))
        left = self.samples - visited
        return Rest(
            epoch,
            how_many(left, visited, num_samples, self.samples),
            SeenRows(seen),
            np.array([left], dtype=np.int64),
        )

    def draw_rest(self, which: Pass, rest: Rest, tally: Tally) -> Samples:
        order = self._permutation(which.epoch)
        left = order[~rest.seen.contains(self._rows_of(order))]
        share = rest.share(which.part.number, which.part.parts)
        return self._samples(left[share.start : share.stop])

    def _samples(self, positions: Positions) -> Samples:
        for position, row in zip(positions.tolist(), self._rows_of(positions).tolist(), strict=True):
            yield RawSample(row, self._name(position), position)

    def _rows_of(self, positions: Positions) -> npt.NDArray[np.int64]:
        return positions

    def _name(self, position: int) -> tuple[str, str]:
        return "sample", str(position)


class SyntheticSource(PositionSource):
    """open_clip's synthetic data: one black image, one caption."""

    def __init__(self, config: DataSettings, transform: Callable[[Any], Tensor]) -> None:
        samples = config.num_samples
        assert samples is not None
        super().__init__(samples, samples, config.batch_size, config.seed, f"synthetic-{samples}")
        self.rows = samples
        self._image = Image.new("RGB", _image_size(transform))

    def decode(self, content: int) -> tuple[Image.Image, str]:
        return self._image, "Dummy caption"


def _image_size(transform: Any) -> tuple[int, int]:
    """That of the first transform, which resizes or crops."""
    size = getattr(next(iter(getattr(transform, "transforms", ())), None), "size", 224)
    return (size, size) if isinstance(size, int) else (size[1], size[0])


class CsvSource(PositionSource):
    """A table with a column of image files and one of captions."""

    def __init__(self, config: DataSettings, index: ShardIndex) -> None:
        path = config.train_data
        assert path is not None
        images, captions = read_table(path, config.csv_columns, as_text=False)
        number = index.find(path)
        self._table_rows = index.shard(path).rows(np.arange(index.samples(number)))
        if len(images) != len(self._table_rows):
            raise DataError(
                f"{path} has {len(images):,} rows, and the index has {len(self._table_rows):,}: rows were added or "
                "removed since; bring the index up to date with `isogclr index build`"
            )
        digest = index.content_digest([number])
        super().__init__(len(images), config.num_samples, config.batch_size, config.seed, digest)
        self.rows = index.number_of_rows
        self._path = path
        self._images, self._captions = PackedTexts(images), PackedTexts(captions)

    def _rows_of(self, positions: Positions) -> npt.NDArray[np.int64]:
        return self._table_rows[positions]

    def _name(self, position: int) -> tuple[str, str]:
        return f"row {position} of {self._path}:", self._images[position]

    def decode(self, content: int) -> tuple[Image.Image, str]:
        """As open_clip does: the mode of the image is the transform's business."""
        with Image.open(self._images[content]) as image:
            image.load()
            return image, self._captions[content]
