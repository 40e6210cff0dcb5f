"""Resume with the same set-up: the rest of the epoch is the one that was interrupted, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isogclr.shard_index import ShardIndex
from training import shard_source
from training.data_config import DataConfig
from training.positions import Position
from training_data import assert_same, open_data, random_transform, read, write_shards

SIZES = [31, 4, 17, 58, 9, 23, 40]


@pytest.fixture
def shards(tmp_path: Path) -> tuple[str, ShardIndex]:
    urls = write_shards(tmp_path / "shards", SIZES, broken=[3, 40, 41, 90, 141], without_caption=[12, 100])
    return urls, ShardIndex.build(urls, tmp_path / "index")


def config_of(urls: str, workers: int, **changes: Any) -> DataConfig:
    return DataConfig(urls, batch_size=4, workers=workers, seed=3, **changes)


@pytest.mark.parametrize("resampled", [False, True])
@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("rank", [0, 1])
def test_every_batch_in_process(
    shards: tuple[str, ShardIndex], monkeypatch: pytest.MonkeyPatch, resampled: bool, epoch: int, rank: int
) -> None:
    """workers=0, from every batch; nothing that is skipped is decoded."""
    monkeypatch.setattr(shard_source, "SAMPLE_INITIAL", 20)
    monkeypatch.setattr(shard_source, "SAMPLE_BUFFER", 30)
    urls, index = shards
    data = open_data(config_of(urls, 0, resampled=resampled), index, rank, 2, random_transform)
    whole = data.epoch(epoch)
    expected = read(whole)
    if not resampled:
        mine = sum(SIZES) - [b.drawn for b in expected][-1]
        assert rank == 0 or mine != 0  # one of the ranks has passed over its shards more or less than once
    decoded = count_decoded(monkeypatch)
    position = whole.first_position
    for done, batch in enumerate(expected):
        rest = data.resume_at(Position.from_json(json.loads(json.dumps(position.to_json()))))
        assert rest.first_position == position
        decoded.clear()
        assert_same(read(rest), expected[done:])
        assert len(decoded) == len(set(decoded)) <= expected[-1].drawn - position.drawn[0]
        position = position.after(batch)
    assert position.batches == whole.batches == data.batches_per_epoch
    assert read(data.resume_at(position)) == []


def count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The contents that were decoded, by identity: every draw reads anew."""
    seen: list[Any] = []
    ids: list[int] = []
    decode = shard_source.ShardSource.decode

    def counting(self: Any, content: Any) -> Any:
        seen.append(content)
        ids.append(id(content))
        return decode(self, content)

    monkeypatch.setattr(shard_source.ShardSource, "decode", counting)
    return ids
