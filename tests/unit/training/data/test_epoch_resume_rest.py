"""Resume with another set-up: the rows not yet seen, each once but for the filling of last batches."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isogclr.errors import DataError, InputError
from isogclr.shard_index import ShardIndex
from support.shard_writing import write_numbered_shards
from support.training_data import numbers, open_data, read
from training.data import shards as shard_source
from training.data.position import Batch
from training.settings import DataSettings

SIZES = [31, 4, 17, 58, 9, 23, 40, 5, 12, 6, 8, 10]  # one shard for each of 12 workers
ROWS = sum(SIZES)
BATCH = 4


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ShardIndex]:
    folder = tmp_path_factory.mktemp("unseen")
    urls = write_numbered_shards(folder / "shards", SIZES)
    return urls, ShardIndex.build(urls, folder / "index")


def run(
    config: DataSettings, index: ShardIndex, world_size: int, seen: np.ndarray, epoch: int = 1
) -> list[list[Batch]]:
    """The batches of every rank; the workers of a rank follow one another in this process."""
    ranks = []
    for rank in range(world_size):
        data = open_data(config, index, rank, world_size)
        ranks.append(read(data.resume_rest(epoch, seen)))
        data.close()
    assert len({len(batches) for batches in ranks}) == 1
    return ranks


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many workers without processes: their streams are read in turn, as the loader would."""
    from training.data import loader  # noqa: PLC0415

    def in_turn(self: Any, order: Any) -> Any:
        streams = []
        for number in range(self.workers):
            monkeypatch.setattr(loader, "get_worker_info", lambda number=number: type("Info", (), {"id": number}))
            streams.append(iter(self._dataset))
        for turn in range(order.batches):
            yield next(streams[turn % self.workers])
        assert all(next(stream, None) is None for stream in streams)

    def start(self: Any, order: Any, waiting: Any) -> Any:
        self._dataset.set_order(order)
        return loader._checked(in_turn(self, order), has_processes=False, waiting=waiting)

    monkeypatch.setattr(loader.Loader, "start", start)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("unseen", [ROWS, 160, 97, 13, 5, 1, 0])
@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(("nodes", "local_ranks"), [(1, 1), (1, 2), (2, 2)])
def test_none_is_lost_and_only_the_filling_is_repeated(
    shards: tuple[str, ShardIndex], unseen: int, accumulation: int, nodes: int, local_ranks: int, workers: int
) -> None:
    urls, index = shards
    world_size = nodes * local_ranks
    parts = world_size * workers
    left = np.random.default_rng(unseen).permutation(ROWS)[:unseen]
    seen = np.ones(index.number_of_rows, dtype=bool)
    seen[left] = False
    config = DataSettings(urls, batch_size=BATCH, workers=workers, accumulation=accumulation, seed=1)
    ranks = run(config, index, world_size, seen)
    batches = len(ranks[0])
    assert batches % accumulation == 0
    needed = math.ceil(math.ceil(unseen / parts) / BATCH) * workers
    assert batches == math.ceil(needed / accumulation) * accumulation
    visits = Counter(row for rank in ranks for batch in rank for row in batch.rows.tolist())
    assert set(visits) == set(left.tolist())
    assert sum(visits.values()) == world_size * batches * BATCH
    if unseen >= parts:  # a worker repeats its own only, and all of it before any of it a second time
        for rank in ranks:
            for worker in range(workers):
                own = Counter(row for batch in rank if batch.worker == worker for row in batch.rows.tolist())
                assert max(own.values()) - min(own.values()) <= 1
                assert len(own) in (unseen // parts, -(-unseen // parts))
    if unseen == 160 and parts in (1, 2, 4) and accumulation == 1:
        assert set(visits.values()) == {1}


@pytest.mark.usefixtures("in_process")
def test_a_worker_reads_only_the_shards_of_its_range(
    shards: tuple[str, ShardIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    urls, index = shards
    seen = np.zeros(ROWS, dtype=bool)
    config = DataSettings(urls, batch_size=BATCH, workers=3, seed=1)
    opened: list[str] = []
    read_shard = shard_source.ShardSource.read_shard

    def noting(self: Any, url: str, tally: Any) -> Any:
        opened.append(url)
        return read_shard(self, url, tally)

    monkeypatch.setattr(shard_source.ShardSource, "read_shard", noting)
    data = open_data(config, index, 1, 2)
    batches = list(data.resume_rest(1, seen))
    order = [data._source.urls[place] for place in data._source.epoch_order(1)]  # type: ignore[attr-defined]
    assert set(opened) < set(order)
    assert len(set(opened)) < len(order) / 2 + 3
    found = [index.locate(batch.rows.numpy())[0].shard for batch in batches]
    assert set(found) <= {Path(url).name for url in opened}


def test_the_rest_of_a_short_epoch(shards: tuple[str, ShardIndex]) -> None:
    """An epoch of fewer samples than there are stops at its own number."""
    urls, index = shards
    seen = np.zeros(ROWS, dtype=bool)
    seen[::3] = True
    config = DataSettings(urls, batch_size=BATCH, workers=0, seed=1, num_samples=100)
    (batches,) = run(config, index, 1, seen)
    rows = [row for batch in batches for row in batch.rows.tolist()]
    left = 100 - int(seen.sum())
    assert len(set(rows)) == left
    assert len(rows) == -(-left // BATCH) * BATCH
    assert not seen[rows].any()
    seen[:] = np.arange(ROWS) < 120
    assert run(config, index, 1, seen) == [[]]


@pytest.mark.parametrize("workers", [0, 2])
def test_with_processes_and_the_epoch_after(shards: tuple[str, ShardIndex], workers: int) -> None:
    urls, index = shards
    config = DataSettings(urls, batch_size=BATCH, workers=workers, seed=1)
    data = open_data(config, index)
    whole = read(data.epoch(0))
    seen = np.zeros(ROWS, dtype=bool)
    for batch in whole[:11]:
        seen[batch.rows.numpy()] = True
    rest = data.resume_rest(0, seen)
    found = read(rest)
    assert not data.same_set_up(rest.first_position.after(found[0]))
    again = read(data.epoch(0))
    data.close()
    assert [batch.rows.tolist() for batch in again] == [batch.rows.tolist() for batch in whole]
    assert set(numbers(found)) == set(range(ROWS)) - set(numbers(whole[:11]))
    with pytest.raises(DataError, match="had changed in that epoch before"):
        data.resume_at(rest.first_position)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("world_size", [1, 3])
def test_damaged_images_neither_hang_nor_lose_others(tmp_path: Path, world_size: int) -> None:
    broken = {*range(10, 40), 77, 118}  # the whole share of some worker
    urls = write_numbered_shards(tmp_path / "shards", [20] * 6, broken, without_caption=[50])
    index = ShardIndex.build(urls, tmp_path / "index")
    config = DataSettings(urls, batch_size=BATCH, workers=2, seed=1)
    for left in (range(120), range(30, 36), [77], [77, 50, 3]):
        seen = np.ones(120, dtype=bool)
        seen[list(left)] = False
        ranks = run(config, index, world_size, seen)
        visited = {row for rank in ranks for batch in rank for row in batch.rows.tolist()}
        assert visited >= set(left) - broken - {50}
        assert not visited & broken


@pytest.mark.usefixtures("in_process")
def test_if_nothing_can_be_decoded_there_is_an_end(tmp_path: Path) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [20] * 2, broken=range(40))
    index = ShardIndex.build(urls, tmp_path / "index")
    data = open_data(DataSettings(urls, batch_size=BATCH, workers=0), index)
    with pytest.raises(DataError, match="failed to decode"):
        list(data.resume_rest(0, np.zeros(40, dtype=bool)))


def test_rows_that_grew_and_rows_of_other_shards(tmp_path: Path) -> None:
    """A shard that was rewritten has rows in several places; shards that are not trained on are not waited for."""
    urls = write_numbered_shards(tmp_path / "shards", [10, 10, 10])
    index = ShardIndex.build(urls, tmp_path / "index")
    write_numbered_shards(tmp_path / "shards", [14, 10])  # one has new keys, and both have other ones than before
    index = ShardIndex.build(urls, tmp_path / "index")
    part = urls.replace("00002", "00001")
    data = open_data(DataSettings(part, batch_size=1, workers=0), index)
    seen = np.zeros(index.number_of_rows, dtype=bool)
    rows = {row for batch in read(data.resume_rest(0, seen)) for row in batch.rows.tolist()}
    first, second = (index.shard(str(tmp_path / "shards" / f"{shard:05d}.tar")) for shard in range(2))
    expected = {first.row(f"{key:06d}") for key in range(14)} | {second.row(f"{key:06d}") for key in range(14, 24)}
    assert rows == expected
    assert max(expected) > 30


def test_refusals(shards: tuple[str, ShardIndex]) -> None:
    urls, index = shards
    resampled = open_data(DataSettings(urls, batch_size=BATCH, workers=0, resampled=True), index)
    with pytest.raises(DataError, match=r"^shards drawn with replacement"):
        resampled.resume_rest(0, np.zeros(ROWS, dtype=bool))
    data = open_data(DataSettings(urls, batch_size=BATCH, workers=0), index)
    with pytest.raises(InputError, match=f"expected {ROWS} booleans"):
        data.resume_rest(0, np.zeros(3, dtype=bool))
