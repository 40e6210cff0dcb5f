"""open_clip_train.main as a reference: its own program, with what a comparison needs changed from outside.

Its sample shuffle draws its seed from the clock: here it is the one of `training.data.shards`. It passes
`device_ids` to DDP, which CPU modules refuse: here they are dropped. It never closes its TensorBoard writer, so
that the last events are lost if the process ends before a thread has written them: here it is closed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import open_clip_train.data
import open_clip_train.main
import torch
import webdataset
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import get_worker_info
from torch.utils.tensorboard import SummaryWriter
from webdataset.filters import _shuffle

from isogclr.models import model_configs
from training.randomness import derive_seed


class SharedEpoch(open_clip_train.data.SharedEpoch):
    """open_clip's epoch number in shared memory; the shuffle below asks the first, of the training data."""

    first: SharedEpoch | None = None

    def __init__(self, epoch: int = 0) -> None:
        super().__init__(epoch)
        SharedEpoch.first = SharedEpoch.first or self


class SeededShuffle(webdataset.PipelineStage):
    """The shuffle of samples, with our seed."""

    seed = 0

    def __init__(self, bufsize: int, initial: int) -> None:
        self._sizes = bufsize, initial
        self._epoch, self._number = -1, 0

    def run(self, source: Iterator[Any]) -> Iterator[Any]:
        assert SharedEpoch.first is not None
        epoch = SharedEpoch.first.get_value()
        self._number = self._number + 1 if self._epoch == epoch else 0
        self._epoch = epoch
        worker = get_worker_info()
        parts = (self.seed, epoch, self._number, int(os.environ.get("RANK", "0")), worker.id if worker else 0)
        return _shuffle(source, *self._sizes, rng=random.Random(derive_seed("samples", *parts)))


class CpuDistributedDataParallel(DistributedDataParallel):
    """Without device_ids."""

    def __init__(self, module: torch.nn.Module, device_ids: Any = None, **options: Any) -> None:
        super().__init__(module, **options)


class ClosedWriter(SummaryWriter):
    """Closed at the end of `main`."""

    opened: ClassVar[list[SummaryWriter]] = []

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.opened.append(self)


def main(argv: Sequence[str]) -> int:
    """`python -m open_clip_train.main`, comparable."""
    model_configs.register()
    SeededShuffle.seed = open_clip_train.main.parse_args(list(argv)).seed
    open_clip_train.data.SharedEpoch = SharedEpoch
    open_clip_train.data.wds.shuffle = SeededShuffle
    torch.nn.parallel.DistributedDataParallel = CpuDistributedDataParallel  # type: ignore[misc]
    open_clip_train.main.tensorboard.SummaryWriter = ClosedWriter
    code = open_clip_train.main.main(list(argv))
    for writer in ClosedWriter.opened:
        writer.close()
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return code or 0
