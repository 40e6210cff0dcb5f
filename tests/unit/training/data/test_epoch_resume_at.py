"""Resume with the same set-up: the rest of the epoch is the one that was interrupted, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from isogclr.errors import DataError
from isogclr.shard_index import ShardIndex
from support.shard_writing import write_numbered_shards
from support.training_data import assert_same, numbers, open_data, random_transform, read
from training.data import shards as shard_source
from training.data.image_text import PairFiles
from training.data.position import Position
from training.settings import DataSettings

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
SIZES = [31, 4, 17, 58, 9, 23, 40]


@pytest.fixture
def shards(tmp_path: Path) -> tuple[str, ShardIndex]:
    urls = write_numbered_shards(tmp_path / "shards", SIZES, broken=[3, 40, 41, 90, 141], without_caption=[12, 100])
    return urls, ShardIndex.build(urls, tmp_path / "index")


def config_of(urls: str, workers: int, **changes: Any) -> DataSettings:
    return DataSettings(urls, batch_size=4, workers=workers, seed=3, **changes)


def stored(position: Position) -> Position:
    """Through the JSON of a checkpoint."""
    return Position.from_json(json.loads(json.dumps(position.to_json())))


class Decodes:
    """Counts the images that are decoded in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        decode = PairFiles.decode

        def counting(files: Any, content: Any) -> Any:
            self.count += 1
            return decode(files, content)

        monkeypatch.setattr(PairFiles, "decode", counting)


@pytest.mark.parametrize("resampled", [False, True])
@pytest.mark.parametrize(("world_size", "rank"), [(2, 0), (3, 1), (3, 2)])
def test_from_every_batch(
    shards: tuple[str, ShardIndex], monkeypatch: pytest.MonkeyPatch, resampled: bool, world_size: int, rank: int
) -> None:
    """In this process; nothing that is skipped is decoded."""
    monkeypatch.setattr(shard_source, "SAMPLE_INITIAL", 20)  # so that samples come before all shards are read
    monkeypatch.setattr(shard_source, "SAMPLE_BUFFER", 30)
    decodes = Decodes(monkeypatch)
    urls, index = shards
    data = open_data(config_of(urls, 0, resampled=resampled), index, rank, world_size, random_transform)
    whole = data.epoch(2)
    expected = read(whole)
    if world_size == 3 and not resampled:
        assert (rank == 1) == (len(set(numbers(expected))) < len(numbers(expected)))  # a second pass
    position = whole.first_position
    for done, batch in enumerate(expected):
        rest = data.resume_at(stored(position))
        assert rest.first_position == position
        decodes.count = 0
        assert_same(read(rest), expected[done:])
        assert 4 * rest.count <= decodes.count <= expected[-1].drawn - position.drawn[0]
        position = position.after(batch)
    assert position.batches == whole.count == data.batches_per_epoch
    assert read(data.resume_at(position)) == []


@pytest.mark.parametrize("resampled", [False, True])
@pytest.mark.parametrize(("workers", "done"), [(1, 5), (2, 1), (2, 6), (3, 1), (3, 2), (3, 13)])
def test_with_worker_processes(shards: tuple[str, ShardIndex], resampled: bool, workers: int, done: int) -> None:
    """A process takes the place of another worker in the resumed epoch only."""
    urls, index = shards
    config = config_of(urls, workers, resampled=resampled)
    uninterrupted = open_data(config, index, 1, 2, random_transform)
    first, second = read(uninterrupted.epoch(1)), read(uninterrupted.epoch(2))
    uninterrupted.close()
    assert len({batch.worker for batch in first}) == workers
    position = uninterrupted.epoch(1).first_position
    for batch in first[:done]:
        position = position.after(batch)
    resumed = open_data(config, index, 1, 2, random_transform)
    assert_same(read(resumed.resume_at(stored(position))), first[done:])
    assert_same(read(resumed.epoch(2)), second)
    resumed.close()


def test_an_abandoned_epoch_leaves_nothing_behind(shards: tuple[str, ShardIndex]) -> None:
    urls, index = shards
    data = open_data(config_of(urls, 2), index)
    next(iter(data.epoch(0)))
    again = read(data.epoch(1))
    data.close()
    fresh = open_data(config_of(urls, 2), index)
    assert_same(again, read(fresh.epoch(1)))
    fresh.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_generator_is_where_the_uninterrupted_run_has_it(shards: tuple[str, ShardIndex], workers: int) -> None:
    """The loader draws a base seed from torch's generator; a resumed run must not draw it a second time."""
    urls, index = shards
    torch.manual_seed(0)
    data = open_data(config_of(urls, workers), index)
    states, position = [], data.start_of(0)
    for epoch in range(2):
        batches = iter(data.epoch(epoch))
        begun = torch.get_rng_state()
        for batch in batches:
            torch.rand(())  # a step
            if epoch == 0 and position.batches < 3:
                position = position.after(batch)
                kept = torch.get_rng_state()
        states.append(torch.get_rng_state())
    data.close()
    cases: list[tuple[Any, torch.Tensor, list[torch.Tensor]]] = [
        (lambda data: [data.resume_at(position), data.epoch(1)], kept, states),
        (lambda data: [data.resume_before(1)], states[0], states[1:]),
        (lambda data: [data.resume_at(data.start_of(1))], begun, states[1:]),  # it had waited for its first batch
    ]
    for resume, state, after in cases:
        torch.set_rng_state(state)
        data = open_data(config_of(urls, workers), index)
        found = []
        for batches in resume(data):
            for _ in batches:
                torch.rand(())
            found.append(torch.get_rng_state())
        data.close()
        assert all(torch.equal(one, other) for one, other in zip(found, after, strict=True))


def test_another_set_up_is_refused(shards: tuple[str, ShardIndex]) -> None:
    urls, index = shards
    position = open_data(config_of(urls, 0), index).start_of(1)
    other = open_data(DataSettings(urls, batch_size=8, workers=0, seed=4), index)
    assert not other.same_set_up(position)
    with pytest.raises(DataError, match=r"another set-up \(batch_size 4 → 8; seed 3 → 4"):
        other.resume_at(position)
    with pytest.raises(DataError, match=r"^the data position in the checkpoint is not one .*another release"):
        Position.from_json({"epoch": 3})


def test_moved_shards_are_the_same_set_up(shards: tuple[str, ShardIndex], tmp_path: Path) -> None:
    urls, index = shards
    before = open_data(config_of(urls, 0), index)
    (tmp_path / "shards").rename(tmp_path / "elsewhere")
    after = open_data(config_of(urls.replace("/shards/", "/elsewhere/"), 0), index)
    assert after.same_set_up(before.start_of(3))
    assert_same(read(after.epoch(3)), read(after.resume_at(before.start_of(3))))
