"""Data that can not be trained on: what is said, and when."""

from __future__ import annotations

import gzip
import logging
import tarfile
from pathlib import Path
from typing import Any

import pytest

from isogclr.errors import ConfigError, DataError, InputError, ShardIndexError, ShardWarning, UnknownShardError
from isogclr.shard_index import ShardIndex
from support.shard_writing import picture, write_numbered_shards, write_shard
from support.training_data import numbers, open_data, read, tokenize
from training.data.epoch import TrainData
from training.data.image_text import PairFiles, PairInputs
from training.data.shards import ShardSource
from training.settings import DataSettings


def config_of(urls: str, workers: int = 0, **changes: Any) -> DataSettings:
    return DataSettings(urls, batch_size=4, workers=workers, **changes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train_data": None}, "name shards or a table with --train-data"),
        ({"train_data": "data/"}, "say what it is with --dataset-type"),
        ({"train_data": "a.tar", "dataset_type": "parquet"}, "expected webdataset, csv, synthetic or auto"),
        ({"train_data": None, "dataset_type": "synthetic"}, "--train-num-samples"),
        ({"train_data": "a.tar", "upsampling_factors": "2"}, "needs --dataset-resampled"),
        (
            {"train_data": "a.tar::b.tar", "upsampling_factors": "2", "resampled": True},
            "1 upsampling factors for 2 parts",
        ),
        ({"train_data": "a.tar", "upsampling_factors": "x", "resampled": True}, "are not numbers"),
        ({"train_data": "a.tar", "upsampling_factors": "0", "resampled": True}, "one above 0"),
        ({"train_data": "a.csv", "resampled": True}, "csv data has none"),
        ({"train_data": "a.tar", "num_samples": 0}, "num_samples is 0, expected 1 or more"),
    ],
)
def test_configurations_that_can_not_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DataSettings(**settings)


def test_all_problems_of_a_configuration_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        DataSettings(None, batch_size=0, workers=-1, upsampling_factors="1::2")
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_known_before_the_first_batch(tmp_path: Path, rank: int) -> None:
    """On every rank the same."""
    urls = write_numbered_shards(tmp_path / "shards", [8, 8, 2, 8])
    index = ShardIndex.build(urls, tmp_path / "index")

    def attempt(config: DataSettings, index: ShardIndex | None = index) -> TrainData:
        return open_data(config, index, rank, 2)

    with pytest.raises(DataError, match="4 shards for 2 ranks of 3 data workers"):
        attempt(config_of(urls, workers=3))
    with pytest.raises(DataError, match=r"--train-num-samples is 27.*has 26 samples"):
        attempt(config_of(urls, num_samples=27))
    with pytest.raises(DataError, match=r"in epoch 0 one of the 4 data workers.* with 2 samples"):
        attempt(config_of(urls, workers=2))
    with pytest.raises(DataError, match="4 batches on each of 2 ranks, fewer than the 5 of one step"):
        attempt(config_of(urls, accumulation=5))
    with pytest.raises(UnknownShardError, match=r"00004\.tar is not in the index"):
        attempt(config_of(urls.replace("00003", "00004")))
    with pytest.raises(InputError, match="webdataset data needs one"):
        attempt(config_of(urls), None)
    empty = write_shard(tmp_path / "empty" / "0.tar", [])
    with pytest.raises(DataError, match="hold no sample"):
        attempt(config_of(str(empty), resampled=True), ShardIndex.build(str(empty), tmp_path / "empty-index"))
    packed = tmp_path / "packed.tar"
    packed.write_bytes(gzip.compress(b"no archive"))
    with pytest.warns(ShardWarning):
        packed_index = ShardIndex.build(str(packed), tmp_path / "packed-index")
    with pytest.raises(
        DataError, match=r"packed\.tar is the first, and it begins as a gzip file does; expected tar"
    ):
        attempt(config_of(str(packed)), packed_index)
    attempt(config_of(urls, workers=3, resampled=True, num_samples=1000))


def test_a_later_epoch_is_checked_before_it_comes(tmp_path: Path) -> None:
    """Which shards meet in a worker changes from epoch to epoch."""
    urls = write_numbered_shards(tmp_path / "shards", [8, 8, 2, 2])
    index = ShardIndex.build(urls, tmp_path / "index")
    shards = [str(tmp_path / "shards" / f"{shard:05d}.tar") for shard in range(4)]
    source = ShardSource(shards, index, PairFiles(), seed=0)
    small = [sum(shard >= 2 for shard in source.epoch_order(epoch)[::2]) for epoch in range(30)]
    unlucky = [epoch for epoch, count in enumerate(small) if count != 1]  # both small ones on one rank
    assert unlucky[0] > 0
    for rank in range(2):
        data = open_data(DataSettings(urls, batch_size=5, workers=0), index, rank, 2)
        data.check_epochs(range(unlucky[0]))
        with pytest.raises(DataError, match=f"in epoch {unlucky[0]} one of the 2 data workers"):
            data.check_epochs(range(30))
        with pytest.raises(DataError, match="data workers would have shards with 4 samples"):
            data.epoch(unlucky[-1])


@pytest.mark.parametrize("resampled", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
class TestNothingUsable:
    """The cause arrives from a worker process as it was raised there."""

    def first_batch(self, urls: str, tmp_path: Path, workers: int, resampled: bool) -> None:
        data = open_data(config_of(urls, workers, resampled=resampled), ShardIndex.build(urls, tmp_path / "index"))
        try:
            next(iter(data.epoch(0)))
        finally:
            data.close()

    def test_no_captions(self, tmp_path: Path, workers: int, resampled: bool) -> None:
        urls = write_numbered_shards(tmp_path / "shards", [10], without_caption=range(10))
        with pytest.raises(DataError, match=r"^none of .* samples has .* extensions json, png, expected"):
            self.first_batch(urls, tmp_path, workers, resampled)

    def test_no_image_decodes(self, tmp_path: Path, workers: int, resampled: bool) -> None:
        urls = write_numbered_shards(tmp_path / "shards", [10], broken=range(10))
        with pytest.raises(DataError, match=r"^all .* failed to decode, the first is .*00000\.tar 00000"):
            self.first_batch(urls, tmp_path, workers, resampled)

    def test_no_shard_opens(self, tmp_path: Path, workers: int, resampled: bool) -> None:
        urls = write_numbered_shards(tmp_path / "shards", [10])
        ShardIndex.build(urls, tmp_path / "index")
        data = open_data(config_of(urls, workers, resampled=resampled), ShardIndex.load(tmp_path / "index"))
        (tmp_path / "shards" / "00000.tar").unlink()
        with pytest.raises(DataError, match=r"^a data worker has tried .* no sample.*00000\.tar.*No such file"):
            next(iter(data.epoch(0)))
        data.close()

    def test_fewer_than_a_batch(self, tmp_path: Path, workers: int, resampled: bool) -> None:
        urls = write_numbered_shards(tmp_path / "shards", [10], broken=range(4), without_caption=range(4, 8))
        if resampled:  # samples may come again, so this is no error
            self.first_batch(urls, tmp_path, workers, resampled)
            return
        with pytest.raises(DataError, match=r"2 usable samples \(4 without .*, 4 undecodable\)"):
            self.first_batch(urls, tmp_path, workers, resampled)


def test_a_resume_without_shards_has_an_end(tmp_path: Path) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [20])
    data = open_data(config_of(urls), ShardIndex.build(urls, tmp_path / "index"))
    epoch = data.epoch(0)
    position = epoch.first_position.after(next(iter(epoch)))
    (tmp_path / "shards" / "00000.tar").unlink()
    with pytest.raises(DataError, match=r"^a data worker has tried .* got no sample.*No such file"):
        next(iter(data.resume_at(position)))


def test_a_damaged_shard_is_named_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [20, 20])
    data = open_data(config_of(urls), ShardIndex.build(urls, tmp_path / "index"))
    damaged = tmp_path / "shards" / "00001.tar"
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2 + 700])
    with caplog.at_level(logging.WARNING):
        found = set(numbers(read(data.epoch(0))))
    assert str(damaged) in caplog.text
    assert set(range(20)) <= found < set(range(40))


def test_a_key_that_the_index_does_not_hold(tmp_path: Path) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [8])
    data = open_data(config_of(urls, workers=1), ShardIndex.build(urls, tmp_path / "index"))
    write_numbered_shards(tmp_path / "shards", [9])
    with pytest.raises(ShardIndexError, match=r"^shard 00000\.tar has no key '000008'"):
        read(data.epoch(0))
    data.close()


def fail(image: Any) -> Any:
    raise RuntimeError("a transform with a fault")


def leave(image: Any) -> Any:
    import os  # noqa: PLC0415

    os._exit(3)


def test_other_errors_of_a_worker_keep_their_type(tmp_path: Path) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [8])
    index = ShardIndex.build(urls, tmp_path / "index")
    data = TrainData.open(config_of(urls, workers=1), index, 0, 1, PairInputs(fail, tokenize))
    with pytest.raises(RuntimeError, match="a transform with a fault") as caught:
        read(data.epoch(0))
    assert type(caught.value) is RuntimeError
    data.close()


def test_a_worker_that_dies(tmp_path: Path) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [8])
    index = ShardIndex.build(urls, tmp_path / "index")
    data = TrainData.open(config_of(urls, workers=1), index, 0, 1, PairInputs(leave, tokenize))
    with pytest.raises(DataError, match="a data worker process ended by itself"):
        read(data.epoch(0))
    data.close()


def test_metadata_that_is_damaged_costs_no_sample(tmp_path: Path) -> None:
    """open_clip's pipeline would unpack it, pickles included, for nothing."""
    members = [
        member
        for number in range(8)
        for member in (
            (f"{number}.png", picture(number)),
            (f"{number}.txt", f"caption {number}".encode()),
            (f"{number}.json", b"{"),
            (f"{number}.pyd", b"no pickle"),
        )
    ]
    url = str(write_shard(tmp_path / "a.tar", members, tarfile.PAX_FORMAT))
    data = open_data(config_of(url), ShardIndex.build(url, tmp_path / "index"))
    assert sorted(numbers(read(data.epoch(0)))) == list(range(8))
