"""Tables and synthetic data: torch's order, rows that nothing shifts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision.transforms import Compose, Resize, ToTensor

from isogclr.errors import DataError, ShardIndexError
from isogclr.shard_index import CsvColumns, ShardIndex
from support.shard_writing import BROKEN, picture
from support.training_data import assert_same, numbers, open_data, random_transform, read
from training.data.source import Pass
from training.data.tables import CsvSource
from training.settings import DataSettings

SAMPLES = 41
BATCH = 4


def write_table(folder: Path, samples: int = SAMPLES, broken: tuple[int, ...] = ()) -> str:
    lines = ["title,filepath"]
    for number in range(samples):
        path = folder / f"{number}.png"
        path.write_bytes(BROKEN if number in broken else picture(number))
        lines.append(f"caption {number},{path}")
    table = folder / "table.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(table)


def index_of(table: str, folder: Path) -> ShardIndex:
    return ShardIndex.build(table, folder / "index", csv_columns=CsvColumns(separator=","))


def config_of(table: str, workers: int = 0, **changes: Any) -> DataSettings:
    return DataSettings(table, csv_separator=",", batch_size=BATCH, workers=workers, seed=5, **changes)


@pytest.mark.parametrize(("world_size", "workers"), [(1, 0), (2, 0), (3, 2)])
def test_the_order_is_that_of_torch(tmp_path: Path, world_size: int, workers: int) -> None:
    table = write_table(tmp_path)
    index = index_of(table, tmp_path)
    for rank in range(world_size):
        data = open_data(config_of(table, workers), index, rank, world_size)
        sampler: DistributedSampler[int] = DistributedSampler(range(SAMPLES), world_size, rank, seed=5)  # type: ignore[arg-type]
        loader: DataLoader[Any] = DataLoader(range(SAMPLES), BATCH, sampler=sampler, drop_last=True)  # type: ignore[arg-type]
        for epoch in range(2):
            sampler.set_epoch(epoch)
            expected = [batch.tolist() for batch in loader]
            found = read(data.epoch(epoch))
            assert [batch.rows.tolist() for batch in found] == expected
            assert numbers(found) == [number for batch in expected for number in batch]
            assert [batch.worker for batch in found] == [place % max(1, workers) for place in range(len(found))]
        data.close()
        assert data.batches_per_epoch == len(loader)
        assert data.samples_per_epoch == data.rows == SAMPLES


@pytest.mark.parametrize("workers", [0, 2])
def test_a_damaged_image_shifts_nobody(tmp_path: Path, workers: int) -> None:
    broken = (3, 17, 40)
    table = write_table(tmp_path, broken=broken)
    data = open_data(config_of(table, workers), index_of(table, tmp_path))
    found = read(data.epoch(0))
    data.close()
    for batch in found:
        assert batch.rows.tolist() == batch.inputs[1][:, 0].tolist() == batch.inputs[0][:, 0].tolist()
    assert len(found) == SAMPLES // BATCH
    assert not set(numbers(found)) & set(broken)
    assert len(set(numbers(found))) >= SAMPLES - len(broken) - BATCH
    assert data.undecodable == len(broken) - sum(number in dropped(data) for number in broken)


def dropped(data: Any) -> set[int]:
    """What the loader leaves out because it fills no batch."""
    source: CsvSource = data._source
    kept = [
        sample.row
        for worker in range(data._loader.workers)
        for sample in source.draw(Pass(0, 0, data._loader._dataset._part._replace(worker=worker)), None)  # type: ignore[arg-type]
    ]
    return set(range(SAMPLES)) - set(kept)


@pytest.mark.parametrize("done", [1, 4, 7])
def test_resume_at_a_position(tmp_path: Path, done: int) -> None:
    table = write_table(tmp_path, broken=(3, 17))
    index = index_of(table, tmp_path)
    data = open_data(config_of(table, 2), index, 0, 1, random_transform)
    expected = read(data.epoch(1))
    data.close()
    position = data.start_of(1)
    for batch in expected[:done]:
        position = position.after(batch)
    resumed = open_data(config_of(table, 2), index, 0, 1, random_transform)
    assert_same(read(resumed.resume_at(position)), expected[done:])
    resumed.close()


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("left", [SAMPLES, 24, 2, 0])
def test_resume_by_unseen_rows(tmp_path: Path, world_size: int, left: int) -> None:
    table = write_table(tmp_path)
    index = index_of(table, tmp_path)
    seen = np.ones(SAMPLES, dtype=bool)
    seen[np.random.default_rng(0).permutation(SAMPLES)[:left]] = False
    ranks = [
        read(open_data(config_of(table), index, rank, world_size).resume_rest(2, seen))
        for rank in range(world_size)
    ]
    found = [number for rank in ranks for number in numbers(rank)]
    assert set(found) == set(np.flatnonzero(~seen).tolist())
    assert len(found) == -(-left // (world_size * BATCH)) * world_size * BATCH
    if left == 24:
        assert sorted(found) == np.flatnonzero(~seen).tolist()


def test_a_table_that_grew_keeps_its_rows(tmp_path: Path) -> None:
    table = write_table(tmp_path, samples=8)
    index_of(table, tmp_path)
    write_table(tmp_path, samples=12)
    data = open_data(config_of(table), index_of(table, tmp_path))
    for batch in read(data.epoch(0)):
        assert batch.rows.tolist() == batch.inputs[1][:, 0].tolist()
    write_table(tmp_path, samples=13)
    with pytest.raises(DataError, match="has 13 rows, and the index has 12"):
        open_data(config_of(table), ShardIndex.load(tmp_path / "index"))


def test_images_reach_the_transform_as_open_clip_gives_them(tmp_path: Path) -> None:
    """Their mode is not changed on the way: the transform does it, after it has resized."""
    table = write_table(tmp_path, samples=4)
    Image.new("LA", (2, 2)).save(tmp_path / "2.png")
    modes = []

    def transform(image: Image.Image) -> torch.Tensor:
        modes.append(image.mode)
        return torch.zeros(1)

    read(open_data(config_of(table), index_of(table, tmp_path), transform=transform).epoch(0))
    assert sorted(modes) == ["LA", "RGB", "RGB", "RGB"]


def test_what_is_wrong_with_a_table(tmp_path: Path) -> None:
    table = write_table(tmp_path)
    index = index_of(table, tmp_path)
    with pytest.raises(
        ShardIndexError,
        match=r"read: it has no column 'text', only 'title', 'filepath'.*--csv-caption-key",
    ):
        open_data(config_of(table, csv_caption_key="text"), index)
    with pytest.raises(ShardIndexError, match=r"can not be read: .*--csv-img-key"):
        open_data(config_of(table, csv_image_key="image"), index)
    with pytest.raises(DataError, match="--train-num-samples is 50"):
        open_data(config_of(table, num_samples=50), index)
    with pytest.raises(DataError, match="0 batches on each of 21 ranks"):
        open_data(config_of(table), index, 0, 21)
    Path(table).unlink()
    with pytest.raises(ShardIndexError, match="does not exist"):
        open_data(config_of(table), index)


def test_synthetic_data() -> None:
    config = DataSettings(None, "synthetic", num_samples=10, batch_size=4, workers=0)
    transform = Compose([Resize((6, 8)), ToTensor()])
    data = open_data(config, None, transform=transform)
    batches = read(data.epoch(0))
    assert len(batches) == data.steps_per_epoch == 2
    assert data.rows == 10
    rows = torch.cat([batch.rows for batch in batches]).tolist()
    assert len(set(rows)) == 8
    assert max(rows) < 10
    assert batches[0].inputs[0].shape == (4, 3, 6, 8)
    assert not batches[0].inputs[0].any()
