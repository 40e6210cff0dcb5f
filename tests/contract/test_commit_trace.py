"""The order of write, fsync, rename and directory fsync. kill -9 can not show a missing fsync; a trace does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from isogclr.state.generations import STORE_SNAPSHOT, prune, write_generation
from isogclr.state.manifest import MANIFEST
from isogclr.state.memory import MemoryStore
from support.store_cases import FINGERPRINT, ISOGCLR, values_of


@pytest.fixture
def trace(monkeypatch):
    """A list of (call, path) of everything that changes or syncs the disk, by the last part of the path."""
    calls = []

    def by_descriptor(name):
        original = getattr(os, name)

        def wrapper(descriptor, *arguments, **options):
            calls.append((name, Path(os.readlink(f"/proc/self/fd/{descriptor}"))))  # noqa: PTH115
            return original(descriptor, *arguments, **options)

        monkeypatch.setattr(os, name, wrapper)

    def by_path(name):
        original = getattr(os, name)

        def wrapper(path, *arguments, **options):
            calls.append((name, Path(path)))
            return original(path, *arguments, **options)

        monkeypatch.setattr(os, name, wrapper)

    for name in ("write", "pwrite", "ftruncate", "fsync"):
        by_descriptor(name)
    for name in ("rename", "unlink", "rmdir"):
        by_path(name)
    return calls


def _commit(root, step):
    with MemoryStore.create(ISOGCLR, 10, FINGERPRINT) as store:
        store.write([3], values_of(ISOGCLR, [1]), step)
        with write_generation(root, step=step) as folder:
            (folder / "model.pt").write_bytes(b"model")
            (folder / "ranks").mkdir()
            (folder / "ranks" / "0.pt").write_bytes(b"random numbers")
            store.commit(folder / STORE_SNAPSHOT)


def _positions(trace, call, name):
    return [position for position, (made, path) in enumerate(trace) if made == call and path.name.startswith(name)]


def test_everything_is_durable_before_the_name_and_the_name_before_the_return(trace, tmp_path):
    _commit(tmp_path / "root", 1)
    (rename,) = _positions(trace, "rename", ".partial-generation-00000001")
    folder = trace[rename][1].name
    (manifest_write,) = _positions(trace, "write", MANIFEST)
    (manifest_fsync,) = _positions(trace, "fsync", MANIFEST)
    for name in ("model.pt", "0.pt", STORE_SNAPSHOT):  # contents before the manifest that vouches for them
        assert max(_positions(trace, "fsync", name)) < manifest_write
    snapshot_writes = [
        position for call in ("pwrite", "ftruncate") for position in _positions(trace, call, STORE_SNAPSHOT)
    ]
    assert max(snapshot_writes) < max(_positions(trace, "fsync", STORE_SNAPSHOT))
    assert manifest_write < manifest_fsync  # the manifest before the folder that names it
    assert manifest_fsync < min(_positions(trace, "fsync", folder))
    assert max(_positions(trace, "fsync", "ranks")) < rename
    assert max(_positions(trace, "fsync", folder)) < rename  # the folder before its final name
    (root_fsync,) = _positions(trace, "fsync", "root")
    assert rename < root_fsync == len(trace) - 1  # the name before anybody is told


def test_a_deleted_generation_loses_its_name_durably_before_its_files(trace, tmp_path):
    for step in (1, 2):
        _commit(tmp_path / "root", step)
    trace.clear()
    assert prune(tmp_path / "root", newest=1) == [1]
    (rename,) = _positions(trace, "rename", "generation-00000001")
    (root_fsync,) = _positions(trace, "fsync", "root")
    removals = [position for position, (call, _) in enumerate(trace) if call in ("unlink", "rmdir")]
    assert len(removals) == 6  # four files, two folders
    assert rename < root_fsync < min(removals)


def test_a_snapshot_is_durable_by_itself(trace, tmp_path):
    with MemoryStore.create(ISOGCLR, 10, FINGERPRINT) as store:
        store.write([3], values_of(ISOGCLR, [1]), 1)
        store.commit(tmp_path / "snapshot")
    calls = [call for call, path in trace if path.name == "snapshot"]
    assert calls == ["ftruncate", "pwrite", "pwrite", "pwrite", "fsync"]  # rows, table, header
