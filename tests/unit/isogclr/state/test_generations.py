"""Joint commits when nothing goes wrong; what goes wrong is in tests/contract."""

from __future__ import annotations

import json
import shutil

import pytest

from isogclr import durable
from isogclr.errors import ForeignFileError, InputError
from isogclr.state.generations import (
    STORE_SNAPSHOT,
    find_snapshot,
    generations,
    latest,
    load_generation,
    prune,
    remove_leftovers,
    write_generation,
)
from isogclr.state.manifest import MANIFEST
from support.store_cases import small_snapshot


def _commit(root, step, **options):
    with write_generation(root, step=step, **options) as folder:
        (folder / "model.pt").write_bytes(b"model %d" % step)
        (folder / "ranks").mkdir()
        (folder / "ranks" / "0.json").write_text("{}")
        small_snapshot(folder / STORE_SNAPSHOT)


def test_nothing_was_committed_yet(tmp_path):
    assert latest(tmp_path) is None
    assert latest(tmp_path / "missing") is None
    assert generations(tmp_path / "missing") == []
    assert prune(tmp_path / "missing", newest=1) == []


def test_a_generation_has_all_files_and_what_the_caller_says(tmp_path):
    _commit(tmp_path, 41)
    _commit(tmp_path, 42, keep=True, info={"epoch": 3, "name": "é"})
    generation = latest(tmp_path)
    assert (generation.number, generation.step, generation.path.name) == (2, 42, "generation-00000002")
    assert generation.manifest.keep
    assert generation.manifest.info == {"epoch": 3, "name": "é"}
    assert set(generation.manifest.files) == {"model.pt", "ranks/0.json", STORE_SNAPSHOT}
    generation.verify()
    assert load_generation(generation.path) == generation
    json.loads((generation.path / MANIFEST).read_text())  # one JSON object, for any reader
    assert [one.step for one in generations(tmp_path)] == [42, 41]


def test_a_body_that_fails_commits_nothing(tmp_path):
    _commit(tmp_path, 1)
    with (  # noqa: PT012 (the end of the body is tested)
        pytest.raises(RuntimeError, match="out of memory"),
        write_generation(tmp_path, step=2) as folder,
    ):
        (folder / "model.pt").write_bytes(b"half")
        raise RuntimeError("out of memory")
    assert [path.name for path in tmp_path.iterdir()] == ["generation-00000001"]
    with pytest.raises(InputError, match="rename yours"), write_generation(tmp_path, step=2) as folder:
        (folder / MANIFEST).write_text("mine")
    assert latest(tmp_path).step == 1


def test_pruning_spares_the_newest_and_the_kept(tmp_path):
    for step in range(1, 9):
        _commit(tmp_path, step, keep=step == 2)
    assert prune(tmp_path, newest=2) == [6, 5, 4, 3, 1]
    assert [one.step for one in generations(tmp_path)] == [8, 7, 2]
    assert prune(tmp_path, newest=1) == [7]
    assert [one.step for one in generations(tmp_path)] == [8, 2]
    with pytest.raises(InputError, match="never deleted"):
        prune(tmp_path, newest=0)
    _commit(tmp_path, 9)
    assert latest(tmp_path).number == 9
    assert not list(tmp_path.glob(".*"))


def test_pruning_counts_steps(tmp_path):
    """Two commits of one step hold the same weights: the one before them is the other that stays."""
    for step in (3, 6, 9, 9):
        _commit(tmp_path, step)
    assert prune(tmp_path, newest=2) == [3, 1]
    assert [(one.number, one.step) for one in generations(tmp_path)] == [(4, 9), (2, 6)]


def test_what_a_crash_leaves_is_ignored_and_removed(tmp_path):
    _commit(tmp_path, 1)
    for name in (".partial-generation-00000002-1-abcd", ".deleted-generation-00000000-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.pt").write_bytes(b"rubbish")
    (tmp_path / "notes").mkdir()
    assert [one.step for one in generations(tmp_path)] == [1]
    assert len(remove_leftovers(tmp_path)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["generation-00000001", "notes"]


def test_a_snapshot_is_found_from_its_file_its_generation_and_its_root(tmp_path):
    _commit(tmp_path, 1)
    generation = latest(tmp_path).path
    for path in (tmp_path, generation, generation / STORE_SNAPSHOT):
        assert find_snapshot(path) == generation / STORE_SNAPSHOT
    for path in (tmp_path / "missing", generation / "ranks"):
        with pytest.raises(ForeignFileError, match="found neither"):
            find_snapshot(path)
    with write_generation(tmp_path, step=2) as folder:
        (folder / "model.pt").write_bytes(b"no store")
    with pytest.raises(ForeignFileError, match="no store snapshot"):
        find_snapshot(tmp_path)


def test_a_copy_under_another_number_is_not_a_generation(tmp_path):
    with write_generation(tmp_path, step=1) as folder:
        (folder / "model.pt").write_bytes(b"model")
    shutil.copytree(tmp_path / "generation-00000001", tmp_path / "generation-00000007")
    with pytest.raises(ForeignFileError, match="a copy under another name"):
        load_generation(tmp_path / "generation-00000007")
    assert latest(tmp_path).number == 1


def test_the_folders_above_a_generation_are_made_durable(tmp_path, monkeypatch):
    """The name of every new folder is synced in the folder above it, before anything is put into it."""
    synced, original = [], durable.fsync_directory
    monkeypatch.setattr(durable, "fsync_directory", lambda path: (synced.append(path), original(path)))
    with write_generation(tmp_path / "run" / "generations", step=1) as folder:
        assert synced == [tmp_path, tmp_path / "run"]
        (folder / "model.pt").write_bytes(b"model")
