"""The batches of one data worker: draw, count, decode, augment, collect."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from training.data.position import Batch, Part
from training.data.rest_of_epoch import Rest
from training.data.sample import RawSample
from training.data.source import Pass, Source
from training.data.tally import Tally
from training.randomness import derive_seed, seed_augmentation

_PATIENCE = 100_000  # samples in a row of which none is usable, where a pass has no end


Prepared = tuple[tuple[Tensor, ...], int]  # the inputs of a sample, and its row


@dataclass(frozen=True)
class Preparation:
    """From a raw sample to inputs of the model. Augmentation depends on seed, epoch and row, so it can be repeated.

    Args:
        source: decodes.
        inputs: what the model gets of a decoded sample; draws from the global generators, which are seeded for it.
        seed: of augmentation.
        undecodable: samples that were left out so far, by all workers of this rank.
    """

    source: Source
    inputs: Callable[[Any], tuple[Tensor, ...]]
    seed: int
    undecodable: Any = field(default_factory=lambda: multiprocessing.Value("q", 0))

    def prepare(self, sample: RawSample, which: Pass, drawn: int, tally: Tally) -> Prepared | None:
        """None if a part of the sample is missing or can not be decoded."""
        if sample.content is None:
            return None
        try:
            decoded = self.source.decode(sample.content)
        except Exception as error:  # whatever a decoder makes of damaged bytes
            tally.note_undecodable(" ".join(sample.name), error)
            with self.undecodable.get_lock():
                self.undecodable.value += 1
            return None
        tally.usable += 1
        # A row may be drawn many times from resampled shards, and should not look the same each time.
        draw = (which.part.rank, which.part.worker, drawn) if self.source.endless else ()
        seed_augmentation(derive_seed("augmentation", self.seed, which.epoch, sample.row, *draw))
        return self.inputs(decoded), sample.row


@dataclass(frozen=True)
class Task:
    """What one worker has to give in one epoch.

    Attributes:
        skip: samples to draw without decoding, those of the batches that were given before.
        rest: what is left of the epoch after a change of set-up; None for the epoch in its own order.
    """

    epoch: int
    part: Part
    batches: int
    batch_size: int
    skip: int = 0
    rest: Rest | None = None


class WorkerStream:
    """Exactly `task.batches` batches; passes over the data follow one another until there are enough.

    A pass over shards drops its last samples if they fill no batch, as open_clip's does. Where batches are dealt
    out (tables), and where nobody else would visit a sample (after a change of set-up), the next pass fills them.
    """

    def __init__(self, task: Task, preparation: Preparation) -> None:
        self._task = task
        self._preparation = preparation
        self._source = preparation.source
        self._rest = task.rest
        self._carries = task.rest is not None or not preparation.source.drops_last
        self._collected: list[Prepared] = []
        self._drawn = 0
        self._given = 0

    def __iter__(self) -> Iterator[Batch]:
        for number in count():
            if self._given == self._task.batches:
                return
            tally = Tally(self._source.files)
            given, drawn = self._given, self._drawn
            yield from self._pass(Pass(self._task.epoch, number, self._task.part), tally)
            if not self._carries:
                self._collected = []
            progress = tally.usable > 0 if self._carries else self._given > given
            replayed = drawn < self._drawn and drawn < self._task.skip
            if not progress and not replayed and self._given < self._task.batches:
                self._find_others(tally)

    def _pass(self, which: Pass, tally: Tally) -> Iterator[Batch]:
        source, rest = self._source, self._rest
        if rest is None and self._task.rest is not None:  # nothing usable is left for this worker: what there is
            which = which._replace(part=Part(rank=0, world_size=1, worker=0, workers=1))
        drawn = source.draw(which, tally) if rest is None else source.draw_rest(which, rest, tally)
        with contextlib.closing(drawn) as samples:
            for sample in samples:
                self._drawn += 1
                if self._drawn <= self._task.skip:
                    continue
                tally.drawn += 1
                prepared = self._preparation.prepare(sample, which, self._drawn, tally)
                if prepared is None:
                    self._lose_patience(tally)
                    continue
                self._collected.append(prepared)
                if len(self._collected) == self._task.batch_size:
                    yield self._full_batch()
                    if self._given == self._task.batches:
                        return

    def _full_batch(self) -> Batch:
        inputs, rows = zip(*self._collected, strict=True)
        self._collected = []
        self._given += 1
        # In a worker process, `default_collate` stacks into shared memory at once.
        stacked = tuple(default_collate(list(one)) for one in zip(*inputs, strict=True))
        return Batch(stacked, torch.tensor(rows, dtype=torch.int64), self._task.part.worker, self._drawn)

    def _lose_patience(self, tally: Tally) -> None:
        """Shards that are drawn with replacement have no end at which one could ask what they gave."""
        if self._source.endless and not tally.usable and tally.drawn >= min(_PATIENCE, 10 * self._source.samples):
            raise tally.complaint(self._task.batch_size)

    def _find_others(self, tally: Tally) -> None:
        """If no image of the unseen rows can be decoded, fill with other samples: all ranks wait for a batch."""
        if self._rest is None:
            raise tally.complaint(self._task.batch_size)
        logging.warning(
            "none of the %d samples that were left for a data worker is usable; it repeats others", tally.drawn
        )
        self._rest = None
