"""Sparse files, clones, file systems, prefetching, and a store of two billion rows."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from isogclr import durable
from isogclr.durable import pwrite_all
from isogclr.errors import StorageFullError
from isogclr.state import filesystem, prefetch, sparse
from isogclr.state.layout import BLOCK_ROWS, PAGE_BYTES
from isogclr.state.prefetch import Prefetcher
from isogclr.state.snapshot import Snapshot
from isogclr.state.store import StateStore
from support.store_cases import FILE, FINGERPRINT, ISOGCLR, numbers_in, values_of

TWO_BILLION = 2_000_000_000


def _is_sparse(folder):
    path = folder / "probe"
    with path.open("wb") as file:
        file.truncate(1 << 20)
    return path.stat().st_blocks == 0


def test_two_billion_rows(tmp_path):
    if not _is_sparse(tmp_path):
        pytest.skip(f"{tmp_path} is on a file system without sparse files")
    rows = np.linspace(0, TWO_BILLION - 1, 500).astype(np.int64)
    start = time.monotonic()
    with StateStore.create(tmp_path / "live", ISOGCLR, TWO_BILLION, FINGERPRINT) as store:
        store.prefetch(rows)
        assert not store.read(rows)["visits"].any()
        store.write(rows, values_of(ISOGCLR, np.arange(500) + 1), 1)
        store.drain()
        np.testing.assert_array_equal(numbers_in(store.read(rows)), np.arange(500) + 1)
        assert not store.read(rows[1:] - 1)["visits"].any()
        store.commit(tmp_path / "snapshot")
    with Snapshot(tmp_path / "snapshot") as snapshot:
        snapshot.verify()
    with StateStore.restore(
        tmp_path / "live", tmp_path / "snapshot", ISOGCLR, TWO_BILLION, FINGERPRINT
    ) as restored:
        np.testing.assert_array_equal(numbers_in(restored.read(rows)), np.arange(500) + 1)
    for name in ("live", "snapshot"):
        status = (tmp_path / name).stat()
        assert status.st_size > 64e9
        assert status.st_blocks * 512 < 12e6  # 500 pages, and 4 MB of checksums
    assert time.monotonic() - start < 30


def test_a_snapshot_leaves_out_pages_of_zeros(tmp_path):
    """A row that was written as zeros again is as good as one that was never written."""
    rows = 8 * BLOCK_ROWS
    with FILE.create(tmp_path, rows=rows) as store:
        store.write(np.arange(rows), values_of(ISOGCLR, np.ones(rows)), 1)
        store.write(np.arange(128, rows), ISOGCLR.zeros(rows - 128), 2)
        info = store.commit(tmp_path / "snapshot")
    assert info.bytes_copied == PAGE_BYTES
    assert (tmp_path / "snapshot").stat().st_blocks * 512 <= 4 * PAGE_BYTES


def test_extents_are_found_with_and_without_support(tmp_path, monkeypatch):
    path = tmp_path / "sparse"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, 1 << 20)
    pwrite_all(descriptor, b"x" * PAGE_BYTES, 1 << 18)
    pwrite_all(descriptor, b"x" * PAGE_BYTES, (1 << 20) - PAGE_BYTES)
    extents = list(sparse.data_extents(descriptor, 0, 1 << 20))
    if _is_sparse(tmp_path):
        assert extents == [(1 << 18, (1 << 18) + PAGE_BYTES), ((1 << 20) - PAGE_BYTES, 1 << 20)]
        assert list(sparse.data_extents(descriptor, 0, 1 << 18)) == []
        assert list(sparse.data_extents(descriptor, 0, (1 << 18) + 5)) == [(1 << 18, (1 << 18) + 5)]

    def unsupported(*_):
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "lseek", unsupported)
    assert list(sparse.data_extents(descriptor, 5, 1 << 20)) == [(5, 1 << 20)]
    os.close(descriptor)


def test_a_cloned_snapshot_equals_a_copied_one(tmp_path, monkeypatch):
    """Where no file system here can share extents, the call is played by a copy of the whole file."""

    def play_clone(target, request, source):
        assert request == 0x40049409
        os.ftruncate(target, os.fstat(source).st_size)
        pwrite_all(target, os.pread(source, os.fstat(source).st_size, 0), 0)

    with FILE.create(tmp_path, rows=3 * BLOCK_ROWS) as store:
        store.write([1, 5000], values_of(ISOGCLR, [1, 2]), 1)
        store.commit(tmp_path / "copied")
        store.write([1], values_of(ISOGCLR, [1]), 2)
        with monkeypatch.context() as patch:
            patch.setattr(durable.fcntl, "ioctl", play_clone)
            info = store.commit(tmp_path / "cloned")
        store.write([1], values_of(ISOGCLR, [1]), 3)
    assert info.cloned
    assert info.blocks_used == 1  # only what was written since the last commit is read
    with Snapshot(tmp_path / "cloned") as snapshot:
        snapshot.verify()
        assert snapshot.header.step == 2
    copied, cloned = (tmp_path / "copied").read_bytes(), (tmp_path / "cloned").read_bytes()
    assert copied[PAGE_BYTES:] == cloned[PAGE_BYTES:]


@pytest.fixture(params=["xfs", "btrfs"])
def cloning_disk(request, tmp_path):
    """A real file system that can share extents."""
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    for command in ([f"mkfs.{request.param}", "-q", str(image)], ["mount", "-o", "loop", str(image), str(folder)]):
        result = subprocess.run(command, check=False, capture_output=True) if shutil.which(command[0]) else None
        if result is None or result.returncode:
            pytest.skip(f"`{' '.join(command)}` does not work here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_file_system_that_can_shares_the_rows(cloning_disk):
    rows = 50 * BLOCK_ROWS
    with FILE.create(cloning_disk, rows=rows) as store:
        store.write(np.arange(rows), values_of(ISOGCLR, np.arange(rows) % 1000), 1)
        infos = []
        for step in (2, 3):
            infos.append(store.commit(cloning_disk / f"snapshot-{step}"))
            store.write([step], values_of(ISOGCLR, [7777]), step)
        store.drain()
        assert [(info.cloned, info.bytes_copied, info.blocks_used) for info in infos] == [
            (True, 0, 50),
            (True, 0, 1),
        ]
        store.reserve_bytes = 1 << 50  # a shared page is copied when it is written: that takes space
        store.write([4], values_of(ISOGCLR, [1]), 4)
        with pytest.raises(StorageFullError):
            store.drain()
    with FILE.restore(cloning_disk, cloning_disk / "snapshot-3", rows=rows) as restored:
        found = numbers_in(restored.read(np.arange(rows)))
    expected = np.arange(rows) % 1000
    expected[2] = 7777
    np.testing.assert_array_equal(found, expected)


MOUNTS = """\
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 21 0:50 / /home rw - nfs4 server:/home rw
31 21 0:51 / /home/me/with\\040space rw - ext4 /dev/sdb rw
32 21 0:52 / /mnt/bucket rw - fuse.s3fs bucket rw
36 21 0:56 / /mnt/unnamed rw - fuse server rw
33 21 0:53 / /dev/shm rw - tmpfs tmpfs rw
34 21 0:54 / /scratch rw - ext4 /dev/sdc rw
35 21 0:55 / /scratch rw shared:1 master:2 - lustre fs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/live", None),
        ("/home/you/live", "nfs4"),
        ("/homestead/live", None),
        ("/home/me/with space/live", None),
        ("/mnt/bucket/a/b/live", "fuse.s3fs"),
        ("/mnt/unnamed/live", "fuse"),
        ("/dev/shm/live", None),
        ("/scratch/live", "lustre"),
    ],
)
def test_network_file_systems_are_recognised(tmp_path, monkeypatch, path, kind):
    (tmp_path / "mounts").write_text(MOUNTS)
    monkeypatch.setattr(filesystem, "_MOUNTS", tmp_path / "mounts")
    assert filesystem.network_file_system(Path(path)) == kind
    assert filesystem.reading_allocates(Path(path)) == path.startswith("/dev/shm")
    monkeypatch.setattr(filesystem, "_MOUNTS", tmp_path / "missing")
    assert filesystem.network_file_system(Path(path)) is None


def test_a_store_on_a_network_file_system_warns(tmp_path, monkeypatch, caplog):
    FILE.create(tmp_path).close()
    assert "network" not in caplog.text
    monkeypatch.setattr(filesystem, "file_system", lambda path: "nfs4")
    FILE.create(tmp_path).close()
    assert "network file system (nfs4)" in caplog.text
    assert "$TMPDIR" in caplog.text


def _faults_of_a_read(path, prefetched):
    """Page faults of reading 100 rows that are far apart, in a mapping of its own."""
    rows = np.arange(0, 1_000_000, 10_000)
    with StateStore.open(path, FINGERPRINT) as reader:
        reader.read(rows[:1])
        if prefetched:
            reader.prefetch(rows)
            reader._prefetcher.close()  # when all requests are served
            reader._prefetcher = None
        before = resource.getrusage(resource.RUSAGE_SELF)
        reader.read(rows)
        after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt


def test_prefetching_spares_the_read_its_page_faults(tmp_path):
    with FILE.create(tmp_path, rows=1_000_000):
        assert _faults_of_a_read(tmp_path / "live", prefetched=False) >= 90
        assert _faults_of_a_read(tmp_path / "live", prefetched=True) <= 20


def test_prefetching_touches_both_ends_of_each_row_and_drops_what_is_too_much(monkeypatch):
    touched = []
    release = []

    def take(data, positions, mode):
        while not release:
            time.sleep(0.001)
        touched.extend(positions.tolist())

    monkeypatch.setattr(prefetch.np, "take", take)
    prefetcher = Prefetcher(np.zeros(4000, np.uint8), 40)
    accepted = sum(prefetcher.request(np.array([row])) for row in range(100))
    release.append(True)
    prefetcher.close()
    assert 8 <= accepted <= 9
    assert touched[:2] == [0, 39]
    assert len(touched) == 2 * accepted


def test_the_store_imports_neither_torch_nor_pickle():
    """`multiprocessing` and others may load pickle; the modules of the store must not name it."""
    modules = "isogclr.state.store, isogclr.state.export, isogclr.state.inspect"
    program = f"import sys, {modules}; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == "False"
    for path in Path(filesystem.__file__).parent.glob("*.py"):
        assert "pickle" not in path.read_text(encoding="utf-8")


def test_a_failed_growth_leaves_everything_as_it_was(tmp_path, monkeypatch):
    with FILE.create(tmp_path, rows=100) as store:
        store.write([99], values_of(ISOGCLR, np.array([7])), 1)
        store.commit(tmp_path / "snapshot")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    grown = {"rows": 10_000, "fingerprint": "index-b", "rows_at": {FINGERPRINT: 100}.__getitem__}
    truncate = os.ftruncate

    def full(descriptor, length):
        if length > 0:  # the lock file is emptied
            raise OSError(errno.ENOSPC, "No space left on device")
        truncate(descriptor, length)

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", full)
        with pytest.raises(StorageFullError, match="create the live file"):
            FILE.restore(tmp_path, tmp_path / "snapshot", **grown)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    with FILE.restore(tmp_path, tmp_path / "snapshot", rows=100) as store:  # the lock was given back
        assert (store.rows, store.index_fingerprint) == (100, FINGERPRINT)
        assert numbers_in(store.read([99])).tolist() == [7]
    with FILE.restore(tmp_path, tmp_path / "snapshot", **grown) as store:
        assert numbers_in(store.read([99, 9_999])).tolist() == [7, 0]
