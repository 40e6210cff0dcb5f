"""Augmentation depends on seed, epoch and row, and leaves the generators of training alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isogclr.shard_index import ShardIndex
from support.shard_writing import write_numbered_shards
from support.training_data import open_data, random_transform, read
from training.data.position import Batch
from training.randomness import derive_seed
from training.settings import DataSettings


def by_row(batches: list[Batch]) -> dict[int, list[list[float]]]:
    found: dict[int, list[list[float]]] = {}
    for batch in batches:
        for row, image in zip(batch.rows.tolist(), batch.inputs[0].tolist(), strict=True):
            found.setdefault(row, []).append(image[1:])
    return found


def draws(folder: Path, epoch: int = 0, world_size: int = 1, **settings: Any) -> dict[int, list[list[float]]]:
    urls = write_numbered_shards(folder / "shards", [12] * 4)
    index = ShardIndex.build(urls, folder / "index")
    config = DataSettings(urls, **{"batch_size": 4, "workers": 0, "seed": 1, **settings})
    found: dict[int, list[list[float]]] = {}
    for rank in range(world_size):
        data = open_data(config, index, rank, world_size, random_transform)
        for row, values in by_row(read(data.epoch(epoch))).items():
            found.setdefault(row, []).extend(values)
        data.close()
    return found


def test_a_row_looks_the_same_whoever_reads_it(tmp_path: Path) -> None:
    alone = draws(tmp_path)
    assert len(alone) == 48
    assert draws(tmp_path, world_size=2, workers=2, batch_size=3) == alone
    flat = [tuple(value) for values in alone.values() for value in values]
    assert len(set(flat)) == 48


def test_it_changes_with_epoch_and_seed(tmp_path: Path) -> None:
    alone = draws(tmp_path)
    for other in (draws(tmp_path, epoch=1), draws(tmp_path, seed=2)):
        assert not any(set(map(tuple, alone[row])) & set(map(tuple, other[row])) for row in alone)


def test_a_row_that_is_drawn_again_looks_different_if_shards_are_resampled(tmp_path: Path) -> None:
    found = draws(tmp_path, resampled=True, num_samples=400)
    repeated = [values for values in found.values() if len(values) > 1]
    assert repeated
    assert all(len(set(map(tuple, values))) == len(values) for values in repeated)


def test_generators_of_the_training_process_are_left_alone(tmp_path: Path) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [12])
    index = ShardIndex.build(urls, tmp_path / "index")
    batches = iter(
        open_data(DataSettings(urls, batch_size=4, workers=0), index, transform=random_transform).epoch(0)
    )

    def state() -> tuple[Any, ...]:
        numpy = np.random.get_state()  # noqa: NPY002 (the global one)
        return random.getstate(), numpy[1].tolist(), numpy[2:], torch.get_rng_state().tolist()  # type: ignore[index]

    before = state()
    next(batches)
    next(batches)
    assert state() == before


def test_seeds_are_the_same_in_every_process() -> None:
    """Python's own hash of a word is not; this number was computed in another one."""
    assert derive_seed("samples", 1, 2) == 2546850676848073663
    assert derive_seed(1, 12) != derive_seed(11, 2)
