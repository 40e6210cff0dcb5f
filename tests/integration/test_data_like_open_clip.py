"""Batch for batch what open_clip's own pipeline gives, from the same shards with the same sample shuffle."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import open_clip_train.data
import pytest
import torch
import webdataset
from torch.utils.data import get_worker_info
from webdataset.filters import _shuffle

from isogclr.shard_index import ShardIndex
from support.shard_writing import write_numbered_shards
from support.training_data import numbers, open_data, plain_transform, read, tokenize
from training.randomness import derive_seed
from training.settings import DataSettings

SEED = 7
SIZES = [31, 4, 17, 58, 9, 23, 40]  # uneven: some workers begin again while others are not through
BATCH = 4


class SeededShuffle(webdataset.PipelineStage):
    """open_clip's sample shuffle draws its seed from the clock; this one is ours."""

    epoch: Any = None
    rank = 0

    def __init__(self, bufsize: int, initial: int) -> None:
        self.sizes = bufsize, initial
        self.passes: tuple[int, int] = (-1, 0)

    def run(self, source: Iterator[Any]) -> Iterator[Any]:
        epoch = self.epoch.get_value()
        number = self.passes[1] + 1 if self.passes[0] == epoch else 0
        self.passes = epoch, number
        worker = get_worker_info()
        rng = random.Random(derive_seed("samples", SEED, epoch, number, self.rank, worker.id if worker else 0))
        return _shuffle(source, *self.sizes, rng=rng)


@pytest.fixture
def seeded_shuffle(monkeypatch: pytest.MonkeyPatch) -> type[SeededShuffle]:
    class Shared(open_clip_train.data.SharedEpoch):
        def __init__(self, epoch: int = 0) -> None:
            super().__init__(epoch)
            SeededShuffle.epoch = self

    monkeypatch.setattr(open_clip_train.data, "SharedEpoch", Shared)
    monkeypatch.setattr(open_clip_train.data.wds, "shuffle", SeededShuffle)
    return SeededShuffle


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # open_clip leaves shards open
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("num_samples", [None, 100])
def test_batches_are_those_of_open_clip(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seeded_shuffle: type[SeededShuffle],
    workers: int,
    world_size: int,
    num_samples: int | None,
) -> None:
    urls = write_numbered_shards(tmp_path / "shards", SIZES, broken=[40, 41, 90], without_caption=[12, 100])
    index = ShardIndex.build(urls, tmp_path / "index")
    monkeypatch.setenv("WORLD_SIZE", str(world_size))
    for rank in range(world_size):
        monkeypatch.setenv("RANK", str(rank))
        seeded_shuffle.rank = rank
        args = Namespace(
            train_data=urls,
            dataset_resampled=False,
            train_num_samples=num_samples or sum(SIZES),
            train_data_upsampling_factors=None,
            seed=SEED,
            batch_size=BATCH,
            workers=workers,
            world_size=world_size,
        )
        theirs = open_clip_train.data.get_wds_dataset(args, plain_transform, is_train=True, tokenizer=tokenize)
        config = DataSettings(urls, batch_size=BATCH, workers=workers, seed=SEED, num_samples=num_samples)
        ours = open_data(config, index, rank, world_size)
        assert ours.batches_per_epoch == theirs.dataloader.num_batches
        assert ours.samples_per_epoch == theirs.dataloader.num_samples
        for epoch in range(2):
            theirs.set_epoch(epoch)
            torch.manual_seed(epoch)
            found = read(ours.epoch(epoch))
            state = torch.get_rng_state()
            torch.manual_seed(epoch)
            expected = list(theirs.dataloader)
            assert torch.equal(state, torch.get_rng_state())  # the loader's base seed is drawn as often
            assert len(found) == len(expected)
            for one, (images, texts) in zip(found, expected, strict=True):
                assert torch.equal(one.inputs[0], images)
                assert torch.equal(one.inputs[1], texts)
            assert len(set(numbers(found))) > BATCH
        ours.close()
