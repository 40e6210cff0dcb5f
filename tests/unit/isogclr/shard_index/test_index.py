"""Build, look up, locate; shards that change, move, vanish and appear; tables."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from isogclr.errors import IndexNotFoundError, InputError, ShardIndexError, ShardWarning, UnknownShardError
from isogclr.shard_index import listing
from isogclr.shard_index.build import BuildSummary, build_index
from isogclr.shard_index.index import Location, ShardIndex
from isogclr.shard_index.pool import default_workers
from isogclr.shard_index.rows import PositionRows
from support.shard_writing import write_pairs, write_shard


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two shards with the same keys."""
    for shard in ("0", "1"):
        write_pairs(tmp_path / "data" / f"{shard}.tar", ["a", "b", "c"])
    return tmp_path / "data"


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards whose headers were read, in order."""
    urls: list[str] = []
    original = listing.list_shard

    def recording(url: str) -> listing.Listing:
        urls.append(Path(url).name)
        return original(url)

    monkeypatch.setattr("isogclr.shard_index.pool.list_samples", recording)
    return urls


def build(data: Path, pattern: str = "{0..1}.tar", **options: object) -> BuildSummary:
    return build_index(f"{data}/{pattern}", data.parent / "index", workers=1, **options)  # type: ignore[arg-type]


def load(data: Path) -> ShardIndex:
    return ShardIndex.load(data.parent / "index")


def everything(index: ShardIndex) -> list[Location]:
    return index.locate(range(index.number_of_rows))


def test_rows_follow_the_sources(data: Path) -> None:
    index = ShardIndex.build(f"{data}/1.tar::{data}/0.tar", data.parent / "index", workers=1)
    assert index.number_of_rows == 6
    assert index.shard(f"{data}/1.tar").rows(["a", "b", "c"]).tolist() == [0, 1, 2]
    assert index.shard(f"{data}/0.tar").rows(["c", "a"]).tolist() == [5, 3]
    assert index.row("0.tar", b"b") == index.row(f"{data}/0.tar", "b") == 4
    assert index.locate([4, 0]) == [("0.tar", "b"), ("1.tar", "a")]
    assert list(index.shard(f"{data}/0.tar")) == ["a", "b", "c"]
    index.verify()
    index.verify_shards()


def test_rows_of_bytes_and_of_nothing(data: Path) -> None:
    build(data)
    rows = load(data).shard(f"{data}/0.tar")
    assert rows.rows([b"c", b"b"]).tolist() == [2, 1]
    assert rows.rows([]).dtype == np.int64
    assert b"c" in rows
    assert "d" not in rows


def test_keys_that_are_not_ascii(tmp_path: Path) -> None:
    keys = ["ü" * 3, "\udcff\udc80", "日本", "a"]
    path = write_pairs(tmp_path / "0.tar", keys, tar_format=2)
    index = ShardIndex.build(str(path), tmp_path / "index", workers=1)
    assert index.shard(str(path)).rows(keys).tolist() == [0, 1, 2, 3]
    assert index.row("0.tar", b"\xff\x80") == 1
    assert [location.key for location in everything(index)] == keys


def test_unknown_keys_rows_and_shards_have_their_own_errors(data: Path) -> None:
    build(data)
    index = load(data)
    with pytest.raises(ShardIndexError, match=r"shard 0.tar has no key 'nope'.*3 keys.*index build"):
        index.shard(f"{data}/0.tar").row("nope")
    with pytest.raises(ShardIndexError, match="has no key 'nope'"):
        index.shard(f"{data}/0.tar").rows(["a", "nope"])
    with pytest.raises(ShardIndexError, match=r"row 6 .* 6 rows"):
        index.locate([0, 6])
    with pytest.raises(ShardIndexError, match="row -1 is not in the index"):
        index.locate([-1])
    with pytest.raises(UnknownShardError, match=r"9.tar.*2 shards.*index build"):
        index.shard(f"{data}/9.tar")
    with pytest.raises(IndexNotFoundError, match="index build"):
        ShardIndex.load(data)


def test_parallel_and_serial_builds_are_the_same(data: Path) -> None:
    for shard in range(2, 9):
        write_pairs(data / f"{shard}.tar", map(str, range(shard)))
    build(data, "{0..8}.tar")
    parallel = ShardIndex.build(f"{data}/{{0..8}}.tar", data.parent / "parallel", workers=2)
    assert parallel.fingerprint == load(data).fingerprint
    assert everything(parallel) == everything(load(data))


def test_processes_are_started_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert default_workers(["0.tar"] * 15) == 1
    assert default_workers(["0.tar"] * 16) == 2
    assert default_workers(["0.tar"] * 1000) == 8
    assert default_workers(["0.tar", "pipe:cat 1.tar"]) == 8


def test_an_error_in_a_worker_names_the_shard(data: Path) -> None:
    write_shard(data / "2.tar", [("a.__key__", b"b")])
    with pytest.raises(Exception, match=r"2\.tar can not be read") as error:
        build_index(f"{data}/{{0..2}}.tar", data.parent / "index", workers=2)
    assert type(error.value).__name__ == "ShardIndexError"
    with pytest.raises(IndexNotFoundError):
        load(data)


def test_nothing_is_read_when_nothing_changed(data: Path, listed: list[str]) -> None:
    build(data)
    before = load(data)
    assert listed == ["0.tar", "1.tar"]
    summary = build(data)
    assert listed == ["0.tar", "1.tar"]
    assert (summary.new_rows, summary.known_shards, summary.changed_shards) == (0, 2, 0)
    assert load(data).fingerprint == before.fingerprint
    build(data, reread=True)
    assert len(listed) == 4
    assert load(data).fingerprint == before.fingerprint


def test_growth_reads_the_new_shards_only_and_moves_nothing(data: Path, listed: list[str]) -> None:
    build(data)
    old = load(data)
    before = everything(old)
    write_pairs(data / "00.tar", ["z", "a"])
    summary = build(data, "{00,0,1}.tar")
    index = load(data)
    assert listed[2:] == ["00.tar"]
    assert summary.new_rows == 2
    assert everything(index) == [*before, ("00.tar", "z"), ("00.tar", "a")]
    assert index.rows_at(old.fingerprint) == 6
    assert index.rows_at(index.fingerprint) == 8
    with pytest.raises(ShardIndexError, match="never had the fingerprint"):
        old.rows_at(index.fingerprint)
    assert everything(old) == before  # an index that is open stays as it was, though its tables are gone


def test_a_changed_shard_keeps_old_rows_and_gets_new_ones_at_the_end(data: Path) -> None:
    build(data)
    write_pairs(data / "0.tar", ["x", "c", "y", "a"])  # b is gone
    with pytest.raises(ShardIndexError, match=r"^shards have changed .*0\.tar has .* bytes"):
        load(data).check([f"{data}/0.tar"])
    with pytest.raises(ShardIndexError, match=r"0\.tar has other members \(4 keys, it had 3\)"):
        load(data).verify_shards()
    assert build(data).changed_shards == 1
    index = load(data)
    assert index.shard(f"{data}/0.tar").rows(["a", "b", "c", "x", "y"]).tolist() == [0, 1, 2, 6, 7]
    assert index.shard(f"{data}/1.tar").rows(["a", "b", "c"]).tolist() == [3, 4, 5]
    assert index.number_of_rows == 8
    assert [shard.samples for shard in index.shards()] == [4, 3]
    write_pairs(data / "0.tar", ["b", "x"])  # b comes back
    build(data)
    assert load(data).number_of_rows == 8
    load(data).verify()


def test_a_shard_with_other_content_in_the_old_place_is_pointed_out(data: Path) -> None:
    build(data)
    write_pairs(data / "0.tar", ["p", "q", "r", "s"])
    with pytest.warns(ShardWarning, match=r"0\.tar shares no key"):
        build(data)
    assert load(data).shard(f"{data}/0.tar").row("a") == 0


def test_a_change_that_keeps_size_and_time_is_found_by_verify(data: Path) -> None:
    build(data)
    stat = (data / "0.tar").stat()
    write_pairs(data / "0.tar", ["a", "b", "d"])
    os.utime(data / "0.tar", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    build(data)
    assert "d" not in load(data).shard(f"{data}/0.tar")
    with pytest.raises(ShardIndexError, match=r"^shards have changed .*0\.tar"):
        load(data).verify_shards()
    build(data, reread=True)
    assert load(data).shard(f"{data}/0.tar").row("d") == 6


def test_moving_the_data_set_changes_nothing(data: Path) -> None:
    build(data)
    before = load(data)
    moved = data.parent / "elsewhere" / "deeper"
    shutil.copytree(data, moved)  # keeps the times
    shutil.rmtree(data)
    index = load(data)
    assert index.shard(f"{moved}/1.tar").row("b") == 4
    index.check([f"{moved}/0.tar", f"{moved}/1.tar"])
    index.verify_shards([f"{moved}/0.tar", f"{moved}/1.tar"])
    with pytest.raises(ShardIndexError, match=r"0\.tar does not exist"):
        index.verify_shards()
    summary = build_index(f"{moved}/{{0..1}}.tar", data.parent / "index", workers=1)
    assert (summary.moved_shards, summary.new_rows) == (2, 0)
    assert load(data).fingerprint == before.fingerprint
    load(data).verify_shards()


def test_a_copy_without_its_times_is_read_and_recognised(data: Path, listed: list[str]) -> None:
    build(data)
    copy = data.parent / "copy"
    shutil.copytree(data, copy)
    for file in copy.iterdir():
        os.utime(file, (1, 1))
    summary = build_index(f"{copy}/{{0..1}}.tar", data.parent / "index", workers=1)
    assert (summary.moved_shards, summary.new_rows, len(listed)) == (2, 0, 4)


def test_two_sources_with_the_same_names(data: Path) -> None:
    """First one source alone, so that its shards have the short ids; then a second one beside it."""
    build(data)
    other = data.parent / "other"
    for shard in ("0", "1"):
        write_pairs(other / f"{shard}.tar", ["a", "b", "c", "d"])
    build_index(f"{data}/{{0..1}}.tar::{other}/{{0..1}}.tar", data.parent / "index", workers=1)
    index = load(data)
    assert [shard.id for shard in index.shards()] == ["0.tar", "1.tar", "other/0.tar", "other/1.tar"]
    assert index.shard(f"{data}/0.tar").row("a") == 0
    assert index.shard(f"{other}/0.tar").row("a") == 6
    assert index.shard("/moved/data/1.tar").row("a") == 3
    assert index.shard("/moved/other/1.tar").row("a") == 10
    with pytest.raises(UnknownShardError, match="could be"):
        index.shard("/renamed/0.tar")


def test_both_sources_at_once_get_ids_of_the_same_length(data: Path) -> None:
    write_pairs(data.parent / "other" / "0.tar", ["a"])
    index = ShardIndex.build(f"{data}/0.tar::{data}/../other/0.tar", data.parent / "index", workers=1)
    assert [shard.id for shard in index.shards()] == ["data/0.tar", "other/0.tar"]


def test_a_namesake_with_other_content_gets_rows_of_its_own(data: Path) -> None:
    build(data)
    write_pairs(data.parent / "new" / "0.tar", ["a", "b", "c", "d"])
    with pytest.warns(ShardWarning, match=r"new/0.tar has the name of .*data/0.tar but other content"):
        build_index(f"{data}/1.tar::{data.parent}/new/0.tar", data.parent / "index", workers=1)
    index = load(data)
    assert index.shard(f"{data.parent}/new/0.tar").row("a") == 6
    assert [shard.present for shard in index.shards()] == [False, True, True]


def test_moved_and_extended_in_one_build_with_the_newcomer_first(tmp_path: Path) -> None:
    """The newcomer has the name of a known shard, whose id is its end too; contents tell them apart."""
    for name, keys in (("cc3m/0.tar", ["a", "b"]), ("cc3m/only.tar", ["c"])):
        write_pairs(tmp_path / "data" / name, keys)
    build_index(f"{tmp_path}/data/cc3m/{{0,only}}.tar", tmp_path / "index", workers=1)
    shutil.move(tmp_path / "data", tmp_path / "mnt")
    write_pairs(tmp_path / "mnt" / "cc12m" / "0.tar", ["x", "y"])
    sources = f"{tmp_path}/mnt/cc12m/0.tar::{tmp_path}/mnt/cc3m/0.tar::{tmp_path}/mnt/cc3m/only.tar"
    with pytest.warns(ShardWarning, match=r"cc12m/0\.tar"):
        summary = build_index(sources, tmp_path / "index", workers=1)
    assert (summary.moved_shards, summary.new_shards, summary.absent_shards, summary.new_rows) == (2, 1, 0, 2)
    index = ShardIndex.load(tmp_path / "index")
    assert index.shard(f"{tmp_path}/mnt/cc3m/0.tar").rows(["a", "b"]).tolist() == [0, 1]
    assert index.shard(f"{tmp_path}/mnt/cc12m/0.tar").rows(["x", "y"]).tolist() == [3, 4]


def test_a_renamed_directory_among_namesakes_is_recognised_by_its_content(tmp_path: Path) -> None:
    for name, keys in (("a/0.tar", ["k1", "k2"]), ("b/0.tar", ["m1"])):
        write_pairs(tmp_path / name, keys)
    build_index(f"{tmp_path}/a/0.tar::{tmp_path}/b/0.tar", tmp_path / "index", workers=1)
    (tmp_path / "a").rename(tmp_path / "a2")
    summary = build_index(f"{tmp_path}/a2/0.tar::{tmp_path}/b/0.tar", tmp_path / "index", workers=1)
    assert (summary.moved_shards, summary.new_rows, summary.absent_shards) == (1, 0, 0)
    assert ShardIndex.load(tmp_path / "index").shard(f"{tmp_path}/a2/0.tar").row("k2") == 1


@pytest.mark.parametrize("order", [("x", "y"), ("y", "x")])
def test_twins_that_move_together_stay_apart(tmp_path: Path, order: tuple[str, str]) -> None:
    """The same content under the same name in two sources: the likeness of the paths tells which is which."""
    for name in ("x", "y"):
        write_pairs(tmp_path / "old" / name / "0.tar", ["k"])
    build_index(f"{tmp_path}/old/x/0.tar::{tmp_path}/old/y/0.tar", tmp_path / "index", workers=1)
    shutil.move(tmp_path / "old", tmp_path / "new")
    build_index("::".join(f"{tmp_path}/new/{name}/0.tar" for name in order), tmp_path / "index", workers=1)
    index = ShardIndex.load(tmp_path / "index")
    assert [index.shard(f"{tmp_path}/new/{name}/0.tar").row("k") for name in ("x", "y")] == [0, 1]


def test_the_same_size_and_time_is_not_the_same_shard(tmp_path: Path) -> None:
    """As in reproducible archives, all of one time: only contents tell a move from another data set."""
    for name, keys in (("x/0.tar", ["k1", "k2"]), ("y/0.tar", ["m1", "m2"])):
        os.utime(write_pairs(tmp_path / name, keys), (0, 0))
    build_index(f"{tmp_path}/x/0.tar", tmp_path / "index", workers=1)
    with pytest.raises(ShardIndexError, match="is the index of another data set"):
        build_index(f"{tmp_path}/y/0.tar", tmp_path / "index", workers=1)


def test_a_shard_that_was_left_out_is_not_taken_over_by_its_twin(tmp_path: Path) -> None:
    """A source with the same content beside it: the old one is still in its place and keeps its rows."""
    for name in ("b/0.tar", "a/0.tar", "c/0.tar"):
        write_pairs(tmp_path / name, ["k1"])
    build_index(f"{tmp_path}/b/0.tar::{tmp_path}/a/0.tar", tmp_path / "index", workers=1)
    with pytest.warns(ShardWarning, match="still in its place"):
        summary = build_index(f"{tmp_path}/b/0.tar::{tmp_path}/c/0.tar", tmp_path / "index", workers=1)
    assert (summary.moved_shards, summary.new_rows) == (0, 1)


def test_new_shards_get_rows_in_the_order_of_the_sources(tmp_path: Path) -> None:
    """Also when some of them were first taken for moved ones."""
    for name, keys in (("old/0.tar", ["a"]), ("old/9.tar", ["z"]), ("new/0.tar", ["b"]), ("new/1.tar", ["c"])):
        write_pairs(tmp_path / name, keys)
    build_index(f"{tmp_path}/old/{{0,9}}.tar", tmp_path / "index", workers=1)
    sources = f"{tmp_path}/old/9.tar::{tmp_path}/new/0.tar::{tmp_path}/new/1.tar"
    with pytest.warns(ShardWarning, match=r"new/0\.tar"):
        build_index(sources, tmp_path / "index", workers=1)
    index = ShardIndex.load(tmp_path / "index")
    assert [index.shard(f"{tmp_path}/new/{n}.tar").row(key) for n, key in ((0, "b"), (1, "c"))] == [2, 3]


def test_a_table_is_not_read_as_a_shard(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("filepath\ttitle\na.jpg\tone\n")
    build_index(str(table), tmp_path / "index")
    with pytest.raises(ShardIndexError, match="is a table in this index"):
        build_index(str(table), tmp_path / "index", dataset_type="webdataset", reread=True)
    with table.open("a") as file:
        file.write("b.jpg\t\n")  # an empty caption: pandas would infer another type for the column
    assert build_index(str(table), tmp_path / "index").new_rows == 1


def test_an_index_of_another_data_set_is_refused(data: Path) -> None:
    build(data)
    write_pairs(data.parent / "other" / "x.tar", ["a"])
    with pytest.raises(ShardIndexError, match=r"another data set.*2 shards like .*0\.tar.*x\.tar.*old::new"):
        build_index(f"{data.parent}/other/x.tar", data.parent / "index", workers=1)
    assert load(data).number_of_rows == 6


def test_shards_that_the_sources_leave_out_keep_their_rows(data: Path) -> None:
    build(data)
    (data / "0.tar").unlink()
    with pytest.raises(ShardIndexError, match=r"0\.tar does not exist"):
        build(data)
    assert build(data, "1.tar").absent_shards == 1
    assert load(data).shard(f"{data}/1.tar").row("a") == 3
    assert load(data).locate([0]) == [("0.tar", "a")]
    write_pairs(data / "0.tar", ["a", "b", "c"])
    assert build(data).new_rows == 0


def test_check_tells_vanished_and_appeared_shards_apart(data: Path) -> None:
    build(data)
    write_pairs(data / "2.tar", ["a"])
    with pytest.raises(UnknownShardError, match=r"2\.tar is not in the index"):
        load(data).check([f"{data}/2.tar"])
    (data / "1.tar").unlink()
    with pytest.raises(ShardIndexError, match=r"1\.tar does not exist"):
        load(data).check([f"{data}/{shard}.tar" for shard in range(2)])


def test_a_shard_named_twice_is_indexed_once(data: Path) -> None:
    sources = f"{data}/0.tar::{data}//0.tar::{data}/1.tar::{data}/0.tar"
    index = ShardIndex.build(sources, data.parent / "index", workers=1)
    assert [shard.url for shard in index.shards()] == [f"{data}/0.tar", f"{data}/1.tar"]
    assert index.number_of_rows == 6


def test_sources_must_name_something(data: Path) -> None:
    with pytest.raises(InputError, match="sources"):
        build_index([], data.parent / "index")


def test_a_directory_with_other_files_is_not_touched(data: Path) -> None:
    with pytest.raises(ShardIndexError, match=r"holds .\.tar, which is no part of an index"):
        build_index(f"{data}/0.tar", data)
    assert sorted(file.name for file in data.iterdir()) == ["0.tar", "1.tar"]


@pytest.mark.parametrize(
    "name", ["rows-of-my-paper.csv", "tables-final.tex", "rows-1.bin.bak", ".partial-index.json-x"]
)
def test_files_with_names_like_ours_are_not_touched(data: Path, name: str) -> None:
    folder = data.parent / "papers"
    folder.mkdir()
    (folder / name).write_text("mine")
    with pytest.raises(ShardIndexError, match="which is no part of an index"):
        build_index(f"{data}/0.tar", folder)
    assert (folder / name).read_text() == "mine"


def test_a_stranger_in_a_finished_index_does_not_stop_a_build(data: Path) -> None:
    """A network file system leaves .nfs files of what a reader has open."""
    build(data)
    (data.parent / "index" / ".nfs00000001").write_text("open somewhere")
    assert build(data).new_rows == 0
    assert (data.parent / "index" / ".nfs00000001").exists()


def test_two_builders_at_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def intrude(url: str) -> listing.Listing:
        with pytest.raises(ShardIndexError, match="another process is building"):
            build(data, "1.tar")
        return listing.list_shard(url)

    monkeypatch.setattr("isogclr.shard_index.pool.list_samples", intrude)
    assert build(data, "0.tar").new_rows == 3


def test_an_empty_shard_is_known_and_has_no_rows(data: Path) -> None:
    write_pairs(data / "2.tar", [])
    build(data, "{0..2}.tar")
    assert len(load(data).shard(f"{data}/2.tar")) == 0
    load(data).verify()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_in_another_process(data: Path, method: str) -> None:
    build(data)
    index = load(data)
    index.shard(f"{data}/0.tar")
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(index.row, ("1.tar", "c")) == 5


def test_sent_as_a_path_and_checked_on_arrival(data: Path) -> None:
    build(data)
    sent = pickle.dumps(load(data))
    assert len(sent) < 500
    write_pairs(data / "2.tar", ["a"])
    build(data, "{0..2}.tar")
    assert pickle.loads(sent).number_of_rows == 7
    shutil.rmtree(data.parent / "index")
    build(data, "{1..2}.tar")
    with pytest.raises(ShardIndexError, match="never had the fingerprint"):
        pickle.loads(sent)


def test_memory_of_a_lookup_is_that_of_a_shard(data: Path) -> None:
    """Going through many shards keeps only the last tables."""
    for shard in range(30):
        write_pairs(data / f"{shard}.tar", ["a"])
    build(data, "{0..29}.tar")
    index = load(data)
    for shard in range(30):
        index.shard(f"{data}/{shard}.tar")
    assert len(index._open) == 2


def test_a_table_by_position(tmp_path: Path) -> None:
    table = tmp_path / "train.csv"
    table.write_text("filepath\ttitle\n" + "".join(f"{row}.jpg\ttext {row}\n" for row in range(5)))
    index = ShardIndex.build(str(table), tmp_path / "index")
    rows = index.shard(str(table))
    assert rows.rows(np.array([4, 0])).tolist() == rows.rows(["4", "0"]).tolist() == [4, 0]
    assert rows.row(3) == index.row("train.csv", "3") == 3  # type: ignore[arg-type]
    assert index.locate([2]) == [("train.csv", "2")]
    for wrong in (5, -1):
        with pytest.raises(ShardIndexError, match=f"has no key '{wrong}'"):
            rows.rows(np.array([wrong]))
        with pytest.raises(ShardIndexError, match=f"has no key '{wrong}'"):
            rows.row(wrong)  # type: ignore[arg-type]
    index.verify()
    index.verify_shards()


def test_a_table_may_grow_at_its_end_and_nowhere_else(tmp_path: Path) -> None:
    table = tmp_path / "train.csv"
    lines = [f"{row}.jpg\ttext {row}\n" for row in range(8)]
    table.write_text("filepath\ttitle\n" + "".join(lines[:5]))
    old = ShardIndex.build(str(table), tmp_path / "index")
    table.write_text("filepath\ttitle\n" + "".join(lines))
    with pytest.raises(ShardIndexError, match=r"^shards have changed .*train\.csv has"):
        old.check([str(table)])
    index = ShardIndex.build(str(table), tmp_path / "index")
    assert index.shard(str(table)).rows(range(8)).tolist() == list(range(8))
    assert index.locate([6]) == [("train.csv", "6")]
    assert index.rows_at(old.fingerprint) == 5
    index.verify()
    for changed in (lines[1:], lines[::-1], lines[:7]):
        table.write_text("filepath\ttitle\n" + "".join(changed))
        with pytest.raises(ShardIndexError, match=r"first 8 rows of .*train\.csv"):
            ShardIndex.build(str(table), tmp_path / "index")


def test_a_table_in_place_of_shards_is_another_data_set(data: Path) -> None:
    build(data)
    table = data.parent / "train.csv"
    table.write_text("filepath\ttitle\na.jpg\ttext\n")
    with pytest.raises(ShardIndexError, match="is the index of another data set"):
        build_index(str(table), data.parent / "index")


@pytest.mark.parametrize("key", ["abc", "\u0663", None, 2.0, -1, 7])
def test_positions_of_a_table_that_are_none(tmp_path: Path, key: object) -> None:
    table = tmp_path / "t.csv"
    table.write_text("filepath\ttitle\n" + "a.jpg\tone\n" * 7)
    rows = build_and_load(str(table), tmp_path / "index")
    for call in (lambda: rows.row(key), lambda: rows.rows([key])):
        with pytest.raises(ShardIndexError, match=r"^shard t\.csv has no key "):
            call()
    assert rows.rows(["0", "6", 3]).tolist() == [0, 6, 3]


def build_and_load(url: str, path: Path) -> PositionRows:
    build_index(url, path)
    return ShardIndex.load(path).shard(url)
