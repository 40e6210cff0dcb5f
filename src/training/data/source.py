"""What a data set must offer to be trained on: samples in the order of a pass, and how to decode one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from training.data.position import Part
from training.data.rest_of_epoch import Rest
from training.data.sample import RawSample, SampleFiles
from training.data.tally import Tally


class Pass(NamedTuple):
    """One way of one worker through its data. An epoch begins with pass 0 and may need more."""

    epoch: int
    number: int
    part: Part


Samples = Generator[RawSample, None, None]  # to be closed, which closes the shard


class Source(Protocol):
    """Samples with rows. Lives in every data worker, so its size in memory matters.

    Attributes:
        rows: rows of the state store that belongs to this data.
        samples: samples of one pass of all workers together.
        digest: of what is drawn: two sources with the same one give the same samples in the same order.
        drops_last: samples that fill no batch at the end of a pass are left out.
        endless: a pass never ends, because shards are drawn with replacement.
        files: what a sample is.
    """

    rows: int
    samples: int
    digest: str
    drops_last: bool
    endless: bool
    files: SampleFiles

    def batches_per_epoch(self, num_samples: int, batch_size: int, world_size: int, workers: int) -> int:
        """Batches of one rank, as open_clip counts them."""
        ...

    def check_epoch(self, epoch: int, batch_size: int, world_size: int, workers: int) -> None:
        """Raise if a worker of any rank can not fill one batch; the same on all ranks."""
        ...

    def draw(self, which: Pass, tally: Tally) -> Samples:
        """The samples of a pass, shuffled."""
        ...

    def rest(self, epoch: int, seen: npt.NDArray[np.bool_], num_samples: int) -> Rest:
        """What an epoch has still to visit."""
        ...

    def draw_rest(self, which: Pass, rest: Rest, tally: Tally) -> Samples:
        """The share of one worker in that, shuffled."""
        ...

    def decode(self, content: Any) -> Any:
        """What `Preparation.inputs` takes; raises whatever the decoder raises."""
        ...
