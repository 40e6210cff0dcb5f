"""Training data of pictures: whole epochs, exact resume, the rest after a change of set-up, subsets."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isogclr.errors import ConfigError, DataError
from isogclr.pictures import LongTail, Pictures, open_pictures
from isogclr.shard_index import ShardIndex
from support.picture_sets import encoded, random_pixels, write_cifar10, write_folders, write_shards
from support.training_data import assert_same, read
from training.data.epoch import EpochBatches, TrainData
from training.data.picture_sources import PictureFiles, open_picture_data
from training.data.position import Batch
from training.data.two_views import ViewInputs, view_transform
from training.settings import DataSettings

BATCH = 4
LAYOUTS = ("folders", "cifar", "shards")
SUBSETS = (False, True)


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pictures]:
    """60 pictures in each layout: three classes, and the ten of CIFAR."""
    folder = tmp_path_factory.mktemp("pictures")
    labels = [number % 3 for number in range(60)]
    ten = [number % 10 for number in range(60)]
    shards = [labels[start : start + 10] for start in range(0, 60, 10)]
    paths = {
        "folders": str(write_folders(folder / "folders", {"a": 20, "b": 20, "c": 20})),
        "cifar": str(write_cifar10(folder / "cifar", random_pixels(60), ten)),
        "shards": write_shards(folder / "shards", shards),
    }
    return {
        name: open_pictures(path, ShardIndex.build(path, folder / "index" / name)) for name, path in paths.items()
    }


def settings(**changes: Any) -> DataSettings:
    return DataSettings(
        **{"train_data": "x", "dataset_type": "pictures", "batch_size": BATCH, "workers": 0} | changes
    )


def open_data(pictures: Pictures, is_subset: bool, rank: int = 0, world_size: int = 1, **changes: Any) -> TrainData:
    view = view_transform(8)
    kept = LongTail.of(pictures, 4, 1) if is_subset else None
    return open_picture_data(settings(**changes), pictures, ViewInputs(view, view), rank, world_size, kept=kept)


def rows_of(pictures: Pictures, is_subset: bool) -> set[int]:
    return set(LongTail.of(pictures, 4, 1).rows) if is_subset else set(range(60))


def drawn(batches: list[Batch]) -> list[int]:
    return [row for batch in batches for row in batch.rows.tolist()]


@pytest.mark.parametrize("is_subset", SUBSETS)
@pytest.mark.parametrize("layout", LAYOUTS)
class TestAll:
    def test_an_epoch_is_once_through(self, sets: dict[str, Pictures], layout: str, is_subset: bool) -> None:
        data = open_data(sets[layout], is_subset)
        rows = drawn(read(data.epoch(0)))
        wanted = rows_of(sets[layout], is_subset)
        assert set(rows) <= wanted
        assert len(wanted) == ({"cifar": 29}.get(layout, 35) if is_subset else 60)
        assert len(set(rows)) > len(wanted) - 2 * BATCH  # but for the last ones, that fill no batch
        assert data.rows == 60
        assert rows != drawn(read(data.epoch(1)))
        assert rows == drawn(read(open_data(sets[layout], is_subset).epoch(0)))

    @pytest.mark.parametrize("stepped", [1, 4])
    def test_resume_is_bit_for_bit(
        self, sets: dict[str, Pictures], layout: str, is_subset: bool, stepped: int
    ) -> None:
        expected = read(open_data(sets[layout], is_subset).epoch(2))
        first = open_data(sets[layout], is_subset).epoch(2)
        position = first.first_position
        for batch in itertools.islice(first, stepped):
            position = position.after(batch)
        assert_same(read(open_data(sets[layout], is_subset).resume_at(position)), expected[stepped:])

    @pytest.mark.parametrize("world_size", [1, 2, 3])
    def test_the_rest_at_another_number_of_ranks(
        self, sets: dict[str, Pictures], layout: str, is_subset: bool, world_size: int
    ) -> None:
        """Each picture once: none lost, none repeated but to fill the last batch of a rank."""
        before = drawn(list(itertools.islice(open_data(sets[layout], is_subset).epoch(1), 3)))
        seen = np.zeros(60, dtype=np.bool_)
        seen[before] = True
        counts: Counter[int] = Counter()
        batches = set()
        for rank in range(world_size):
            rest: EpochBatches = open_data(sets[layout], is_subset, rank, world_size).resume_rest(1, seen)
            own = Counter(drawn(read(rest)))
            batches.add(rest.count)
            assert not set(own) & set(counts), "two ranks have the same picture"
            counts += own
        assert set(counts) == rows_of(sets[layout], is_subset) - set(before)
        assert len(batches) == 1
        repeated = sum(counts.values()) - len(counts)
        assert repeated < world_size * BATCH * 2

    def test_a_short_epoch_knows_what_is_left(
        self, sets: dict[str, Pictures], layout: str, is_subset: bool
    ) -> None:
        data = open_data(sets[layout], is_subset, num_samples=20)
        before = drawn(list(itertools.islice(data.epoch(0), 3)))
        seen = np.zeros(60, dtype=np.bool_)
        seen[before] = True
        rest = drawn(read(open_data(sets[layout], is_subset, num_samples=20).resume_rest(0, seen)))
        assert len(set(rest)) == 8
        assert not set(rest) & set(before)

    def test_set_ups_tell_subsets_apart(self, sets: dict[str, Pictures], layout: str, is_subset: bool) -> None:
        one, other = open_data(sets[layout], is_subset), open_data(sets[layout], not is_subset)
        assert one.set_up.data != other.set_up.data
        assert one.same_set_up(open_data(sets[layout], is_subset).start_of(3))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_share_an_epoch(sets: dict[str, Pictures], layout: str) -> None:
    ranks = [drawn(read(open_data(sets[layout], False, rank, 3).epoch(0))) for rank in range(3)]
    assert len(set(itertools.chain(*ranks))) >= 60 - 3 * BATCH
    assert all(not set(one) & set(other) for one, other in itertools.combinations(ranks, 2))


def test_views_depend_on_seed_epoch_and_row_only(sets: dict[str, Pictures]) -> None:
    """The same picture looks the same whichever rank or batch it comes in."""

    def looks(epoch: int, world_size: int, seed: int = 0) -> dict[int, tuple[torch.Tensor, ...]]:
        found = {}
        for rank in range(world_size):
            for batch in open_data(sets["cifar"], False, rank, world_size, seed=seed).epoch(epoch):
                found.update(
                    {
                        row: tuple(one[place] for one in batch.inputs)
                        for place, row in enumerate(batch.rows.tolist())
                    }
                )
        return found

    one, two, later, other = looks(0, 1), looks(0, 2), looks(1, 1), looks(0, 1, seed=1)
    common = set(one) & set(two)
    assert len(common) > 40
    assert all(torch.equal(a, b) for row in common for a, b in zip(one[row], two[row], strict=True))
    assert not any(torch.equal(one[row][0], later[row][0]) for row in set(one) & set(later))
    assert not any(torch.equal(one[row][1], other[row][1]) for row in set(one) & set(other))


def test_worker_processes_give_what_one_process_gives(sets: dict[str, Pictures]) -> None:
    data = open_data(sets["cifar"], True, workers=1)
    try:
        found = read(data.epoch(0))
    finally:
        data.close()
    assert drawn(found) == drawn(read(open_data(sets["cifar"], True).epoch(0)))


def test_pictures_that_can_not_be_decoded_are_left_out_and_counted(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"a": 7, "b": 6})
    (root / "a" / "000.png").write_bytes(encoded(0)[:40])
    (root / "b" / "001.png").write_bytes(b"")
    (root / "b" / "large.png").write_bytes(encoded(0, (64, 30)))
    pictures = open_pictures(str(root), ShardIndex.build(str(root), tmp_path / "index"))
    data = open_data(pictures, False)
    rows = [row for epoch in range(4) for row in drawn(read(data.epoch(epoch)))]
    bad = {row for row in range(14) if pictures.name(row) in (("a", "000.png"), ("b", "001.png"))}
    assert len(bad) == 2
    assert not set(rows) & bad
    assert len(rows) == 4 * 12
    assert set(rows) == set(range(14)) - bad
    assert data.undecodable >= 2


def test_nothing_can_be_decoded(tmp_path: Path) -> None:
    root = write_folders(tmp_path / "data", {"a": 0})
    for number in range(5):
        (root / "a" / f"{number}.jpg").write_text("no picture")
    pictures = open_pictures(str(root), ShardIndex.build(str(root), tmp_path / "index"))
    with pytest.raises(DataError, match="all 4 images that a data worker has read failed to decode"):
        list(open_data(pictures, False).epoch(0))


def test_a_batch_of_one(sets: dict[str, Pictures]) -> None:
    with pytest.raises(ConfigError, match="the batch size is 1, expected 2 or more: a picture is told apart"):
        open_data(sets["cifar"], False, batch_size=1)


def test_fewer_pictures_than_a_batch(sets: dict[str, Pictures]) -> None:
    with pytest.raises(DataError, match="an epoch of 29 samples has 0 batches"):
        open_data(sets["cifar"], True, batch_size=30)


def test_fewer_shards_than_workers(sets: dict[str, Pictures]) -> None:
    with pytest.raises(DataError, match="--data names 6 shards for 4 ranks of 2 data workers"):
        open_data(sets["shards"], False, 0, 4, workers=2)


def test_a_list_of_other_data(sets: dict[str, Pictures]) -> None:
    kept = LongTail.of(sets["folders"], 4, 1)
    view = view_transform(8)
    with pytest.raises(DataError, match=r"--imbalance 4, seed 1\) was made from other data"):
        open_picture_data(settings(), sets["cifar"], ViewInputs(view, view), 0, 1, kept=kept)


def test_what_a_sample_of_a_shard_is() -> None:
    files = PictureFiles()
    assert files.choose({"txt": b"a", "webp": b"b", "__key__": "c"}) == b"b"
    assert files.choose({"cls": b"1"}) is None
    assert files.decode(encoded(0)).size == (8, 8)
