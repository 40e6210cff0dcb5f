"""Index and store of a run: built once, found again, and the same on every rank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isogclr.distributed import Messages, Ranks
from isogclr.errors import ShardIndexError, StoreLockedError, TrainingError
from isogclr.shard_index import ShardIndex
from isogclr.state import MemoryStore, StateStore
from isogclr.state.lock import lock_path
from support.gloo import run_ranks
from support.shard_writing import write_pairs
from support.store_cases import ISOGCLR, numbers_in, values_of
from training.ranks.node import Node
from training.settings import SYNTHETIC, DataSettings
from training.store.opening import SYNTHETIC_FINGERPRINT, check_not_in_use, live_file, open_index, open_store
from training.store.placement import StateFolder

ONE = Node(number=0, count=1, first_rank=0, is_first_rank=True)


def alone() -> Messages:
    return Messages(Ranks())


def shards(folder: Path, *sizes: int) -> DataSettings:
    """So many samples per shard."""
    for shard, size in enumerate(sizes):
        write_pairs(folder / f"{shard}.tar", [f"{shard}{number}" for number in range(size)])
    return DataSettings(str(folder / f"{{0..{len(sizes) - 1}}}.tar"), workers=0)


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


class TestIndex:
    def test_synthetic_data_has_none(self, tmp_path: Path) -> None:
        config = DataSettings(None, dataset_type=SYNTHETIC, num_samples=10)
        assert open_index(config, tmp_path / "index", alone(), ONE) is None
        assert not (tmp_path / "index").exists()

    def test_it_is_built_on_first_use(self, tmp_path: Path) -> None:
        index = open_index(shards(tmp_path / "data", 3, 4), tmp_path / "index", alone(), ONE)
        assert index is not None
        assert (index.number_of_rows, index.number_of_shards) == (7, 2)

    def test_a_current_one_is_not_touched(self, tmp_path: Path) -> None:
        """It may be read-only, and shared with runs that map it."""
        config = shards(tmp_path / "data", 3, 4)
        open_index(config, tmp_path / "index", alone(), ONE)
        before = files_of(tmp_path / "index")
        open_index(config, tmp_path / "index", alone(), ONE)
        assert files_of(tmp_path / "index") == before

    def test_a_shard_that_was_added_gets_rows_behind_the_others(self, tmp_path: Path) -> None:
        first = open_index(shards(tmp_path / "data", 3), tmp_path / "index", alone(), ONE)
        second = open_index(shards(tmp_path / "data", 3, 4), tmp_path / "index", alone(), ONE)
        assert first is not None
        assert second is not None
        assert second.number_of_rows == 7
        assert list(second.locate(range(3))) == list(first.locate(range(3)))

    def test_a_table_is_read_with_the_columns_that_were_named(self, tmp_path: Path) -> None:
        table = tmp_path / "table.csv"
        table.write_text("picture,words\na.png,one\nb.png,two\n", encoding="utf-8")
        config = DataSettings(
            str(table), csv_separator=",", csv_image_key="picture", csv_caption_key="words", workers=0
        )
        index = open_index(config, tmp_path / "index", alone(), ONE)
        assert index is not None
        assert index.number_of_rows == 2

    def test_a_missing_shard_is_said(self, tmp_path: Path) -> None:
        config = shards(tmp_path / "data", 3, 4)
        (tmp_path / "data" / "1.tar").unlink()
        with pytest.raises(ShardIndexError, match=r"1\.tar does not exist"):
            open_index(config, tmp_path / "index", alone(), ONE)


class TestInUse:
    def test_a_file_that_nobody_opened_is_free_and_stays_away(self, tmp_path: Path) -> None:
        live = live_file(StateFolder(tmp_path, is_scratch=False), ONE)
        check_not_in_use(live)
        assert list(tmp_path.iterdir()) == []

    def test_a_second_run_is_told(self, tmp_path: Path) -> None:
        live = live_file(StateFolder(tmp_path, is_scratch=False), ONE)
        with (
            StateStore.create(live, ISOGCLR, 5, "f"),
            pytest.raises(StoreLockedError, match=f"found the lock of pid {os.getpid()}"),
        ):
            check_not_in_use(live)

    def test_asking_does_not_keep_the_lock(self, tmp_path: Path) -> None:
        live = live_file(StateFolder(tmp_path, is_scratch=False), ONE)
        lock_path(live).touch()
        check_not_in_use(live)
        check_not_in_use(live)


@pytest.mark.parametrize(("number", "name"), [(0, "node-00000.live"), (12, "node-00012.live")])
def test_a_live_file_per_node(number: int, name: str) -> None:
    node = Node(number, 13, number, is_first_rank=True)
    assert live_file(StateFolder(Path("/scratch"), is_scratch=True), node) == Path("/scratch") / name


class TestStore:
    def test_a_new_one_is_empty_and_belongs_to_the_index(self, tmp_path: Path) -> None:
        index = open_index(shards(tmp_path / "data", 3, 4), tmp_path / "index", alone(), ONE)
        assert index is not None
        folder = StateFolder(tmp_path / "state", is_scratch=False)
        with open_store(folder, ISOGCLR, index.number_of_rows, index, None, alone(), ONE) as store:
            assert (store.rows, store.newest_step) == (7, None)
            assert store.index_fingerprint == index.fingerprint
            assert live_file(folder, ONE).exists()

    def test_a_snapshot_comes_back_with_its_step(self, tmp_path: Path) -> None:
        snapshot = tmp_path / "snapshot"
        with MemoryStore.create(ISOGCLR, 5, SYNTHETIC_FINGERPRINT) as before:
            before.write(np.arange(5), values_of(ISOGCLR, np.arange(5) + 1), 9)
            before.commit(snapshot)
        folder = StateFolder(tmp_path / "state", is_scratch=False)
        with open_store(folder, ISOGCLR, 5, None, snapshot, alone(), ONE) as store:
            assert store.newest_step == 9
            assert numbers_in(store.read(np.arange(5))).tolist() == [1, 2, 3, 4, 5]

    def test_one_of_a_smaller_index_grows(self, tmp_path: Path) -> None:
        """The index knows how many rows it had when the snapshot was made."""
        small = open_index(shards(tmp_path / "data", 3), tmp_path / "index", alone(), ONE)
        assert small is not None
        with MemoryStore.create(ISOGCLR, 3, small.fingerprint) as before:
            before.write(np.arange(3), values_of(ISOGCLR, [1, 2, 3]), 9)
            before.commit(tmp_path / "snapshot")
        large = open_index(shards(tmp_path / "data", 3, 4), tmp_path / "index", alone(), ONE)
        folder = StateFolder(tmp_path / "state", is_scratch=False)
        with open_store(folder, ISOGCLR, 7, large, tmp_path / "snapshot", alone(), ONE) as store:
            assert numbers_in(store.read(np.arange(7))).tolist() == [1, 2, 3, 0, 0, 0, 0]


def index_of_node(messages: Messages, folder: Path, sees_that_of_rank_0: bool, has_same_shards: bool) -> str:
    """Two nodes of one rank each; what was raised."""
    rank = messages.ranks.rank
    config = shards(folder / f"data-{rank}", 3, 4 if has_same_shards or rank == 0 else 40)
    path = folder / ("index" if sees_that_of_rank_0 else f"index-{rank}")
    try:
        open_index(config, path, messages, Node(rank, 2, rank, is_first_rank=True))
    except TrainingError as error:
        return str(error)
    return ""


def shared_store(messages: Messages, folder: Path) -> list[int]:
    """Two ranks of one node: what the first has written, as both read it."""
    is_first = messages.ranks.rank == 0
    place = StateFolder(folder, is_scratch=False)
    with open_store(place, ISOGCLR, 5, None, None, messages, Node(0, 1, 0, is_first)) as store:
        if is_first:
            store.write(np.arange(5), values_of(ISOGCLR, np.arange(5) + 1), 1)
            store.drain()
        messages.barrier()
        found = numbers_in(store.read(np.arange(5))).tolist()
        messages.barrier()
        return found


def on_rank(folder: Path) -> tuple[str, str, str, list[int]]:
    """All cases in one pair of processes, which take long to start."""
    messages = Messages.of(Ranks())
    return (
        index_of_node(messages, folder / "seen", True, False),
        index_of_node(messages, folder / "same", False, True),
        index_of_node(messages, folder / "different", False, False),
        shared_store(messages, folder / "state"),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def said(folder: Path) -> list[tuple[str, str, str, list[int]]]:
    return run_ranks(2, on_rank, folder)


class TestTwoRanks:
    def test_an_index_that_both_nodes_see_is_built_by_rank_0(self, said: Any, folder: Path) -> None:
        """What other shards the second node has does not matter: it takes what rank 0 has built."""
        assert [one[0] for one in said] == ["", ""]
        assert ShardIndex.load(folder / "seen" / "index").number_of_rows == 7

    def test_who_does_not_see_it_builds_the_same(self, said: Any, folder: Path) -> None:
        assert [one[1] for one in said] == ["", ""]
        indexes = [ShardIndex.load(folder / "same" / f"index-{rank}") for rank in range(2)]
        assert indexes[0].fingerprint == indexes[1].fingerprint

    def test_different_shards_are_refused_by_both(self, said: Any) -> None:
        one, other = (rank[2] for rank in said)
        assert one == other
        assert one.startswith("ranks have different shard indexes (rank 0: ")
        assert "--index on a shared file system" in one

    def test_ranks_of_one_node_share_a_store(self, said: Any) -> None:
        assert [one[3] for one in said] == [[1, 2, 3, 4, 5]] * 2
