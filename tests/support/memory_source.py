"""A data set in memory for tests of what draws from one: every sample is its row."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from training.data.image_text import PairFiles
from training.data.rest_of_epoch import Rest, SeenRows
from training.data.sample import RawSample, SampleFiles
from training.data.source import Pass, Samples
from training.data.tally import Tally


@dataclass
class MemorySource:
    """Rows 0 … n − 1 in order, dealt to all workers of all ranks in turn.

    Args:
        incomplete: rows without image or caption.
        broken: rows that can not be decoded.

    Attributes:
        passes: those that were begun, in order.
        decoded: rows that were decoded, in order, with those that failed.
        closed: passes that were closed, as a shard must be.
    """

    samples: int
    drops_last: bool = True
    endless: bool = False
    incomplete: Collection[int] = ()
    broken: Collection[int] = ()
    passes: list[Pass] = field(default_factory=list)
    decoded: list[int] = field(default_factory=list)
    closed: int = 0
    files: SampleFiles = field(default_factory=PairFiles)
    digest: str = "memory"

    @property
    def rows(self) -> int:
        return self.samples

    def batches_per_epoch(self, num_samples: int, batch_size: int, world_size: int, workers: int) -> int:
        raise NotImplementedError

    def check_epoch(self, epoch: int, batch_size: int, world_size: int, workers: int) -> None:
        raise NotImplementedError

    def draw(self, which: Pass, tally: Tally) -> Samples:
        """In the order of the rows; an endless source begins again."""
        own = range(which.part.number, self.samples, which.part.parts)
        rounds = count() if self.endless else range(1)
        return self._samples(which, (row for _ in rounds for row in own))

    def rest(self, epoch: int, seen: np.ndarray[Any, np.dtype[np.bool_]], num_samples: int) -> Rest:
        left = int(np.count_nonzero(~seen))
        return Rest(epoch, left, SeenRows(seen), np.array([left]))

    def draw_rest(self, which: Pass, rest: Rest, tally: Tally) -> Samples:
        left = rest.seen.unseen(range(self.samples)).tolist()
        share = rest.share(which.part.number, which.part.parts)
        return self._samples(which, iter(left[share.start : share.stop]))

    def _samples(self, which: Pass, rows: Iterator[int]) -> Samples:
        self.passes.append(which)
        try:
            for row in rows:
                yield RawSample(row, ("memory", str(row)), None if row in self.incomplete else row)
        finally:
            self.closed += 1

    def decode(self, content: int) -> tuple[Any, Any]:
        """The row, twice."""
        self.decoded.append(content)
        if content in self.broken:
            raise ValueError(f"row {content} is broken")
        return content, content
