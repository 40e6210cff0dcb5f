"""Disks that fail: whatever call of a commit fails and how, the last generation stays and the error is clear."""

from __future__ import annotations

import errno
import itertools
import os
import subprocess
from contextlib import suppress

import numpy as np
import pytest

from isogclr.errors import StorageFullError, StoreError
from isogclr.state.generations import STORE_SNAPSHOT, generations, latest, prune, write_generation
from isogclr.state.layout import BLOCK_ROWS
from isogclr.state.store import StateStore
from support.store_cases import FILE, FINGERPRINT, ISOGCLR, MEMORY, numbers_in, values_of

ROWS = 2 * BLOCK_ROWS
FAILING = ("open", "write", "pwrite", "ftruncate", "fsync", "rename", "mkdir")
INTACT = "what was committed before is intact"


def _commit(store, root, step):
    store.write([step], values_of(store.schema, [step]), step)
    with write_generation(root, step=step) as folder:
        (folder / "model.pt").write_bytes(b"step %d" % step)
        store.commit(folder / STORE_SNAPSHOT)


def _fail_at(monkeypatch, name, number, code):
    """The `number`-th call of this name fails; a list that is filled when it does."""
    original, counter, failed = getattr(os, name), itertools.count(1), []

    def wrapper(*arguments, **options):
        if next(counter) == number:
            failed.append(arguments)
            raise OSError(code, os.strerror(code))
        return original(*arguments, **options)

    monkeypatch.setattr(os, name, wrapper)
    return failed


def _check_intact(root, step, restore):
    generation = latest(root)
    assert generation.step == step
    generation.verify()
    assert (generation.path / "model.pt").read_bytes() == b"step %d" % step
    with restore(generation.path / STORE_SNAPSHOT) as restored:
        np.testing.assert_array_equal(
            numbers_in(restored.read(np.arange(4))), [0, *range(1, step + 1)][:4] + [0] * (3 - step)
        )


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT], ids=["full", "broken", "quota"])
@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("factory", [FILE, MEMORY], ids=["file", "memory"])
def test_every_call_of_a_commit_may_fail(monkeypatch, tmp_path, factory, name, code):
    """The n-th call fails, for all n until a commit goes through; then the same store commits for real."""
    root = tmp_path / "root"
    store = factory.create(tmp_path, rows=ROWS)
    _commit(store, root, 1)
    for number in itertools.count(1):
        assert number < 100
        with monkeypatch.context() as patch:
            failed = _fail_at(patch, name, number, code)
            error = None
            try:
                with write_generation(root, step=1) as folder:
                    (folder / "model.pt").write_bytes(b"step 1")
                    store.commit(folder / STORE_SNAPSHOT)
            except StoreError as caught:
                error = caught
        assert bool(failed) == (error is not None)
        if error is None:
            break
        assert type(error) is (StoreError if code == errno.EIO else StorageFullError)
        assert "could not " in str(error)
        assert INTACT in str(error)
        assert not list(root.glob(".partial*"))  # a full disk is not filled with rubbish
    assert number > 1  # the call does occur in a commit
    _commit(store, root, 2)
    store.close()
    _check_intact(root, 2, lambda path: factory.restore(tmp_path, path, rows=ROWS))


def test_short_writes_are_completed(monkeypatch, tmp_path):
    """A call that writes one byte less, or one byte only, is no failure."""
    counter = itertools.count()

    def shorten(name):
        original = getattr(os, name)

        def wrapper(descriptor, data, *arguments):
            view = memoryview(data).cast("B")
            length = len(view) - 1 if next(counter) % 2 else max(1, len(view) // 3)
            return original(descriptor, view[: max(1, length)], *arguments)

        monkeypatch.setattr(os, name, wrapper)

    shorten("write")
    shorten("pwrite")
    with FILE.create(tmp_path, rows=ROWS) as store:
        _commit(store, tmp_path / "root", 1)
    assert next(counter) >= 11  # at least twice for each of header, rows, table, manifest and live header
    monkeypatch.undo()
    _check_intact(tmp_path / "root", 1, lambda path: FILE.restore(tmp_path, path, rows=ROWS))


def test_short_reads_are_completed(monkeypatch, tmp_path):
    with FILE.create(tmp_path, rows=ROWS) as store:
        _commit(store, tmp_path / "root", 1)
    original = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda descriptor, buffers, offset: original(descriptor, [buffers[0][:1000]], offset)
    )
    _check_intact(tmp_path / "root", 1, lambda path: FILE.restore(tmp_path, path, rows=ROWS))


@pytest.mark.parametrize("name", ["rename", "fsync"])
def test_a_deletion_that_fails_hides_nothing_that_is_needed(monkeypatch, tmp_path, name):
    with MEMORY.create(tmp_path, rows=ROWS) as store:
        for step in (1, 2, 3):
            _commit(store, tmp_path / "root", step)
    with monkeypatch.context() as patch:
        _fail_at(patch, name, 1, errno.EIO)
        with pytest.raises(StoreError, match="delete an old generation: Input/output error"):
            prune(tmp_path / "root", newest=1)
    assert generations(tmp_path / "root")[0].step == 3
    _check_intact(tmp_path / "root", 3, lambda path: MEMORY.restore(tmp_path, path, rows=ROWS))


@pytest.mark.parametrize("name", ["ftruncate", "pwrite", "open"])
def test_a_live_file_that_can_not_be_created_gives_the_lock_back(monkeypatch, tmp_path, name):
    for number in itertools.count(1):
        with monkeypatch.context() as patch:
            failed = _fail_at(patch, name, number, errno.ENOSPC)
            with suppress(StorageFullError):
                FILE.create(tmp_path, rows=ROWS).close()
        assert not list(tmp_path.glob(".partial*"))
        FILE.create(tmp_path, rows=ROWS).close()
        if not failed:
            break
    assert number > 2


def test_a_nearly_full_disk_stops_the_writer_and_not_the_process(monkeypatch, tmp_path):
    """A page that can not be allocated under a mapping kills the process; the writer must stop before that."""
    store = FILE.create(tmp_path, rows=ROWS)
    store.write([1], values_of(ISOGCLR, [1]), 1)
    store.commit(tmp_path / "snapshot")
    free = os.statvfs(tmp_path)
    store.reserve_bytes = free.f_bavail * free.f_frsize * 2
    store.write([2], values_of(ISOGCLR, [2]), 2)
    with pytest.raises(StorageFullError, match=INTACT):
        store.drain()
    with pytest.raises(StorageFullError, match="free space"):
        store.read([1])
    with pytest.raises(StorageFullError):
        store.write([3], values_of(ISOGCLR, [3]), 3)
    store.close()
    with FILE.restore(tmp_path, tmp_path / "snapshot", rows=ROWS) as restored:
        np.testing.assert_array_equal(numbers_in(restored.read([1, 2])), [1, 0])


def test_a_file_without_holes_needs_no_free_space(tmp_path):
    with FILE.create(tmp_path, rows=ROWS) as store:
        live = tmp_path / "live"
        with live.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, live.stat().st_size)
        store.reserve_bytes = 1 << 62
        store.write([1], values_of(ISOGCLR, [1]), 1)
        store.drain()
        assert store.applied_step == 1


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(small_disk):
    """Train until the disk is full: a clear error, and the last generation can be resumed when there is room."""
    rows = 1_000_000  # 32 MB, sparse
    store = StateStore.create(small_disk / "live", ISOGCLR, rows, FINGERPRINT)
    store.reserve_bytes = 1 << 20
    random, state, committed = np.random.default_rng(0), np.zeros(rows, np.int64), []
    with pytest.raises(StorageFullError, match=INTACT):  # noqa: PT012 (whichever call meets the end of the disk)
        for step in range(1, 10_000):
            batch = random.integers(0, rows, 20)
            np.testing.assert_array_equal(numbers_in(store.read(batch)), state[batch])
            store.write(batch, values_of(ISOGCLR, np.full(20, step)), step)
            state[batch] = step
            if step % 5 == 0:
                with write_generation(small_disk / "root", step=step) as folder:
                    store.commit(folder / STORE_SNAPSHOT)
                committed.append(state.copy())
    store.close()
    generation = latest(small_disk / "root")
    generation.verify()
    assert generation.step == 5 * len(committed)
    prune(small_disk / "root", newest=1)  # what the message advises
    with StateStore.restore(
        small_disk / "live", generation.path / STORE_SNAPSHOT, ISOGCLR, rows, FINGERPRINT
    ) as restored:
        restored.reserve_bytes = 1 << 20
        for batch in np.array_split(np.flatnonzero(committed[-1]), 50):
            np.testing.assert_array_equal(numbers_in(restored.read(batch)), committed[-1][batch])


def test_reading_holes_in_shared_memory_until_it_is_full(small_disk):
    """There a page is allocated even by a read; without a check the process would end with SIGBUS."""
    with StateStore.create(small_disk / "live", ISOGCLR, 1_000_000, FINGERPRINT) as store:
        store.reserve_bytes = 1 << 20
        with pytest.raises(StorageFullError, match=INTACT):  # noqa: PT012
            for batch in np.array_split(np.arange(0, 1_000_000, 100), 500):
                store.prefetch(batch)
                assert not store.read(batch)["visits"].any()


@pytest.mark.parametrize("name", ["pwrite", "ftruncate", "fsync"])
def test_a_snapshot_that_fails_leaves_no_file(monkeypatch, tmp_path, name):
    with MEMORY.create(tmp_path, rows=ROWS) as store:
        _fail_at(monkeypatch, name, 1, errno.ENOSPC)
        with pytest.raises(StorageFullError, match="write a snapshot"):
            store.commit(tmp_path / "snapshot")
    assert not (tmp_path / "snapshot").exists()
