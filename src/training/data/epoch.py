"""The training data of one rank: whole epochs, and the rest of an epoch that was interrupted.

    data = TrainData.open(config, index, rank, world_size, PairInputs(transform, tokenizer), pin_memory)
    epoch = data.epoch(3)                       # or data.resume_at(position), data.resume_rest(3, seen)
    position = epoch.first_position
    for batch in epoch:
        ...
        position = position.after(batch)        # what a checkpoint keeps, once the batch was stepped

The way of a sample: `shards.py` or `tables.py` draws it and knows its row, `worker.py` decodes it and collects
batches, `loader.py` runs that in worker processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from isogclr.errors import DataError, InputError
from isogclr.shard_index import ShardIndex
from training.data.image_text import PairFiles, PairInputs
from training.data.loader import Loader, Order, Waiting
from training.data.position import Batch, Position, SetUp
from training.data.shards import ResampledShardSource, ShardSource
from training.data.source import Source
from training.data.tables import CsvSource, SyntheticSource
from training.data.worker import Preparation
from training.open_clip_bridge import expand_urls
from training.randomness import generators_preserved
from training.settings import CSV, SYNTHETIC, DataSettings


@dataclass(frozen=True)
class EpochBatches:
    """The batches of an epoch, or of what is left of it, on one rank.

    Attributes:
        count: how many there are, the same on all ranks.
        first_position: where the first one begins.
    """

    count: int
    first_position: Position
    _loader: Loader
    _order: Order
    _keep_generator: bool = False

    def __iter__(self) -> Iterator[Batch]:
        return self.read()

    def read(self, waiting: Waiting = contextlib.nullcontext) -> Iterator[Batch]:
        """Start reading; every wait for a batch is inside `waiting()`.

        torch's loader draws its base seed from the global generator here, as open_clip's does; not if it is the
        continuation of an epoch in which it was drawn before.
        """
        with generators_preserved() if self._keep_generator else contextlib.nullcontext():
            return self._loader.start(self._order, waiting)


class TrainData:
    """See the module. Make it with `open`, and close it.

    Attributes:
        rows: rows of the state store that belongs to this data.
        batches_per_epoch: micro-batches of one rank in a whole epoch.
        steps_per_epoch: as open_clip counts them, an incomplete last one is not taken.
        samples_per_epoch: of all ranks, as open_clip counts them.
        set_up: what the order of samples depends on.
    """

    def __init__(self, config: DataSettings, source: Source, preparation: Preparation, loader: Loader) -> None:
        world_size, workers = loader.world_size, loader.workers
        self._source = source
        self._preparation = preparation
        self._loader = loader
        self._config = config
        self._num_samples = config.num_samples or source.samples
        self.rows = source.rows
        self.batches_per_epoch = source.batches_per_epoch(self._num_samples, config.batch_size, world_size, workers)
        self.steps_per_epoch = self.batches_per_epoch // config.accumulation
        self.samples_per_epoch = self.batches_per_epoch * config.batch_size * world_size
        if not source.drops_last:
            self.samples_per_epoch = self._num_samples
        self.set_up = SetUp(
            world_size=world_size,
            workers=config.workers,
            batch_size=config.batch_size,
            accumulation=config.accumulation,
            seed=config.seed,
            resampled=config.resampled,
            num_samples=self._num_samples,
            data=source.digest,
        )

    @classmethod
    def open(
        cls,
        config: DataSettings,
        index: ShardIndex | None,
        rank: int,
        world_size: int,
        inputs: PairInputs,
        pin_memory: bool = False,
    ) -> TrainData:
        """Data of pictures and captions, as open_clip's flags name it."""
        return cls.of(config, _open_source(config, index, inputs), inputs, rank, world_size, pin_memory)

    @classmethod
    def of(
        cls,
        config: DataSettings,
        source: Source,
        inputs: Callable[[Any], tuple[Tensor, ...]],
        rank: int,
        world_size: int,
        pin_memory: bool = False,
    ) -> TrainData:
        """Data of any source. Checks everything that can be known before the first batch; what is wrong is wrong on
        all ranks."""
        preparation = Preparation(source, inputs, config.seed)
        loader = Loader(config, preparation, rank, world_size, pin_memory)
        data = cls(config, source, preparation, loader)
        data._check(len(source.urls) if isinstance(source, ShardSource) else None)
        return data

    def _check(self, shards: int | None) -> None:
        config, source = self._config, self._source
        parts = self._loader.world_size * self._loader.workers
        if shards is not None and not source.endless and shards < parts:
            raise DataError(
                f"{config.flag} names {shards:,} shards for {self._loader.world_size:,} ranks of "
                f"{self._loader.workers:,} data workers: every worker needs one; use fewer workers, cut the data "
                "into more shards, or draw shards with replacement (--dataset-resampled)"
            )
        if not source.endless and self._num_samples > source.samples:
            raise DataError(
                f"--train-num-samples is {self._num_samples:,}, and the data has {source.samples:,} samples: leave "
                "the flag out to use all of them, or draw shards with replacement (--dataset-resampled)"
            )
        if not self.steps_per_epoch:
            raise DataError(
                f"an epoch of {self._num_samples:,} samples has {self.batches_per_epoch:,} batches on each of "
                f"{self._loader.world_size:,} ranks, fewer than the {config.accumulation:,} of one step: use a "
                "smaller batch, less accumulation or fewer ranks"
            )
        self.check_epochs([0])

    def check_epochs(self, epochs: Iterable[int]) -> None:
        """Raise now what would be raised at the beginning of one of these epochs; takes no reading of shards."""
        for epoch in epochs:
            self._source.check_epoch(epoch, self._config.batch_size, self._loader.world_size, self._loader.workers)

    @property
    def undecodable(self) -> int:
        """Samples of this rank that were left out so far because they could not be decoded."""
        return int(self._preparation.undecodable.value)

    def start_of(self, epoch: int) -> Position:
        """The position of this rank in front of an epoch."""
        return Position(epoch, 0, (0,) * self._loader.workers, self.set_up)

    def same_set_up(self, position: Position) -> bool:
        """Whether `resume_at` can go on from there, bit for bit."""
        return not position.unseen and position.set_up == self.set_up

    def epoch(self, epoch: int) -> EpochBatches:
        """A whole epoch."""
        return self._from(self.start_of(epoch))

    def resume_at(self, position: Position) -> EpochBatches:
        """The rest of an epoch that was begun, if only by a wait for its first batch, as if it had not been
        interrupted."""
        if not self.same_set_up(position):
            changes = position.set_up.differences(self.set_up) or ["the set-up had changed in that epoch before"]
            raise DataError(
                f"the position in epoch {position.epoch} belongs to another set-up ({'; '.join(changes)}): "
                "go on with the rows that the epoch has not seen"
            )
        return self._from(position, keep_generator=True)

    def resume_before(self, epoch: int) -> EpochBatches:
        """A whole epoch, of which nothing was begun when the run was interrupted."""
        # Persistent workers get their base seed once per run, the loader of this process gets one every epoch.
        return self._from(self.start_of(epoch), keep_generator=self._config.workers > 0)

    def _from(self, position: Position, keep_generator: bool = False) -> EpochBatches:
        self.check_epochs([position.epoch])
        order = Order(position.epoch, self.batches_per_epoch, position.batches, position.drawn)
        return EpochBatches(
            self.batches_per_epoch - position.batches, position, self._loader, order, keep_generator
        )

    def resume_rest(self, epoch: int, seen: npt.NDArray[np.bool_]) -> EpochBatches:
        """The rest of an epoch that was begun with other ranks, workers or batches: the rows it has not seen.

        Each of them comes once; only the last batches of the workers are filled up with repetitions.
        """
        if self._source.endless:
            raise DataError(
                "shards drawn with replacement (--dataset-resampled) can be resumed in mid-epoch only with the "
                "ranks, workers, batch size and accumulation that it was begun with: use these, or resume from "
                "the end of an epoch"
            )
        if seen.shape != (self.rows,) or seen.dtype != np.bool_:
            raise InputError(f"seen: expected {self.rows:,} booleans, found {seen.dtype} of shape {seen.shape}")
        rest = self._source.rest(epoch, seen, self._num_samples)
        batches = rest.number_of_batches(
            self._config.batch_size, self._loader.world_size, self._loader.workers, self._config.accumulation
        )
        position = Position(epoch, 0, (0,) * self._loader.workers, self.set_up, unseen=True)
        order = Order(epoch, batches, 0, position.drawn, rest)
        return EpochBatches(batches, position, self._loader, order, _keep_generator=True)

    def close(self) -> None:
        """End the workers."""
        self._loader.close()


def _open_source(config: DataSettings, index: ShardIndex | None, inputs: PairInputs) -> Source:
    if config.kind == SYNTHETIC:
        return SyntheticSource(config, inputs.transform)
    if index is None:
        raise InputError(f"index: {config.kind} data needs one, found None")
    assert config.train_data is not None
    if config.kind == CSV:
        return CsvSource(config, index)
    urls, weights = expand_urls(config.train_data, config.upsampling_factors)
    if config.resampled:
        return ResampledShardSource(urls, weights, index, PairFiles(), config.seed)
    return ShardSource(urls, index, PairFiles(), config.seed)
