"""The state store: one file per node, mapped by all of its ranks, written by one thread of one of them."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from isogclr.durable import Buffer
from isogclr.errors import InputError, StorageFullError, StoreError, StoreStalledError
from isogclr.state.attach import attach, require_writer
from isogclr.state.blocks import Checksums
from isogclr.state.contract import RowsAt, RowStore, grown_header
from isogclr.state.faults import full_disk, storage_errors
from isogclr.state.filesystem import warn_if_network
from isogclr.state.layout import DATA_OFFSET, Header
from isogclr.state.live import LiveFile
from isogclr.state.lock import StoreLock, lock_path
from isogclr.state.pending import PendingUpdates, Update
from isogclr.state.prefetch import Prefetcher
from isogclr.state.schema import Schema, Values
from isogclr.state.snapshot import Snapshot, SnapshotInfo
from isogclr.state.sparse import read_exactly, write_nonzero_pages
from isogclr.state.writer import WriterThread

QUEUE_BYTES = 256 << 20
RESERVE_BYTES = 64 << 20
STALL_SECONDS = 300.0


class StateStore(RowStore):
    """A store in a file. Make one with `create` or `restore` in the first rank of a node, `open` in the others.

    Every rank calls `write` with the rows of all ranks, as the exchange of the step gives them, and `read` with its
    own. In the writer process a thread applies the updates to the file; every process lays those that are not in
    the file yet over what it reads (`published.py` has the argument why that is enough). So neither call waits for
    the disk, with one exception: the updates that wait are bounded by `queue_bytes`, and a `write` beyond that
    waits until the disk has caught up. The time is in `wait_seconds`, with that of drains; after `stall_seconds`
    without any progress it raises StoreStalledError.

    A full disk must not kill the process (`LiveFile.has_room`): with less than `reserve_bytes` left, the writer
    stops and the next call raises StorageFullError.
    """

    def __init__(self, live: LiveFile, lock: StoreLock | None, checksums: Checksums | None = None) -> None:
        super().__init__(live.header, checksums)
        self._newest = max(self._newest, live.published.applied())
        self._live = live
        self._lock = lock
        self._pid = os.getpid()
        self._pending = PendingUpdates()
        self._writer: WriterThread | None = None
        self._prefetcher: Prefetcher | None = None
        self.queue_bytes = QUEUE_BYTES
        self.reserve_bytes = RESERVE_BYTES
        self.stall_seconds = STALL_SECONDS

    @classmethod
    def create(cls, path: Path, schema: Schema, rows: int, index_fingerprint: str) -> StateStore:
        """A store of samples that were never visited; this process becomes its writer."""
        header = Header(schema, rows, index_fingerprint, run=secrets.token_hex(8))
        return cls._create(path, header, None, None)

    @classmethod
    def restore(
        cls,
        path: Path,
        snapshot: Path,
        schema: Schema,
        rows: int,
        index_fingerprint: str,
        rows_at: RowsAt | None = None,
    ) -> StateStore:
        """The store of a snapshot; this process becomes its writer. Every block is verified on the way.

        Args:
            path: of the live file; an old one is replaced.
            snapshot: of the generation that is resumed.
            schema: columns that the loss needs.
            rows: of the index.
            index_fingerprint: of the index.
            rows_at: `ShardIndex.rows_at`: how many rows the index had at an earlier fingerprint, whose rows it
                still has; raises if it never had it. Without it, only a snapshot of the same index is accepted.
        """
        with Snapshot(snapshot) as source:
            header = grown_header(source.header, snapshot, schema, rows, index_fingerprint, rows_at)

            def fill(descriptor: int) -> None:
                for first, data in source.chunks():
                    write_nonzero_pages(descriptor, data, DATA_OFFSET + first * header.block_bytes)

            return cls._create(path, replace(header, run=secrets.token_hex(8)), fill, source.checksums)

    @classmethod
    def _create(
        cls, path: Path, header: Header, fill: Callable[[int], None] | None, checksums: Checksums | None
    ) -> StateStore:
        warn_if_network(path)
        with storage_errors(path, "lock the state store"):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = StoreLock(lock_path(path))
        try:
            live = LiveFile.create(path, header, fill)
            if header.step is not None:
                live.published.begin(header.step)
                live.published.finish(header.step)
            return cls(live, lock, checksums)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, path: Path, index_fingerprint: str, run: str | None = None) -> StateStore:
        """Attach to the store that another process of this node has created or restored.

        Args:
            path: of the live file.
            index_fingerprint: of the index of this process.
            run: `run` of the writer's store; with it, a file of another run is refused.
        """
        return cls(attach(path, index_fingerprint, run), None)

    @property
    def run(self) -> str:
        """The random name that the writer gave this live file."""
        return self._live.header.run

    @property
    def is_writer(self) -> bool:
        return self._lock is not None

    @property
    def applied_step(self) -> int | None:
        """The last step whose rows are in the file."""
        self._check_open()
        applied = self._live.published.applied()
        return applied if applied >= 0 else None

    def read(self, rows: npt.ArrayLike) -> Values:
        checked = self._checked_rows(rows)
        self._check_usable()
        if self._live.reading_allocates:
            self._check_space(len(checked))
        published = self._live.published
        deadline = 0.0
        while True:
            applied = published.applied()
            values: Values = np.take(self._live.data, checked, mode="clip")
            if published.begun() <= max(applied, self._newest):
                break
            deadline = deadline or time.monotonic() + self.stall_seconds
            self._pause(deadline)
        self._pending.lay_over(checked, values, applied)
        return values

    def prefetch(self, rows: npt.ArrayLike) -> None:
        checked = self._checked_rows(rows)
        if self._prefetcher is None:
            self._prefetcher = Prefetcher(self._live.cells, self.schema.row_bytes)
        if not self._live.reading_allocates or self._live.has_room(len(checked), self.reserve_bytes):
            self._prefetcher.request(checked)

    def write(self, rows: npt.ArrayLike, values: Values, step: int) -> None:
        checked = self._checked_rows(rows)
        update = Update(self._checked_step(step), checked, self._checked_values(values, len(checked)))
        self._check_usable()
        self._pending.forget(self._live.published.applied())
        if self._pending.nbytes + update.nbytes > self.queue_bytes:
            self._wait_until(lambda: self._pending.nbytes + update.nbytes <= self.queue_bytes)
        self._pending.add(update)
        self._newest = update.step
        if self.is_writer:
            self._writer = self._writer or WriterThread(self._apply)
            self._writer.submit(update)

    def drain(self) -> None:
        self._check_usable()
        self._wait_until(lambda: self._live.published.applied() >= self._newest)

    def commit(self, path: Path) -> SnapshotInfo:
        self._require_writer("commit")
        info = super().commit(path)
        self._live.writing_allocates |= info.cloned  # pages that are shared are copied when they are written
        return info

    def changed_blocks(self) -> tuple[npt.NDArray[np.int64], Checksums]:
        self._require_writer("changed_blocks")
        return super().changed_blocks()

    def close(self) -> None:
        """End the threads and give the lock back. The live file stays, as scratch that the next run replaces."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            if self._writer is not None:
                self._writer.close()
            if self._prefetcher is not None:
                self._prefetcher.close()
                self._prefetcher = None  # its view of the rows would keep the mapping open
            self._live.close()
        finally:
            if self._lock is not None:
                self._lock.release()

    def _bytes(self, offset: int, length: int) -> Buffer:
        """Through the descriptor, not the mapping: a bad sector is then an error and not the end of the process."""
        return read_exactly(self._live.descriptor, length, DATA_OFFSET + offset)

    def _clone_source(self) -> int | None:
        return self._live.descriptor

    def _apply(self, update: Update) -> None:
        """Write one update into the mapping; runs in the writer thread."""
        self._check_space(len(update.rows))
        self._live.published.begin(update.step)
        np.put(self._live.data, update.rows, update.values, mode="clip")
        self._checksums.mark(update.blocks)
        self._live.published.finish(update.step)

    def _check_space(self, rows: int) -> None:
        if not self._live.has_room(rows, self.reserve_bytes):
            raise full_disk(self._live.path, f"keep {self.reserve_bytes:,} bytes free on the disk of the state")

    def _check_usable(self) -> None:
        """Refuse to go on after an error of the writer thread, and in a fork, which has neither thread nor news."""
        self._check_open()
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self._live.path}: found a process that was forked from the one that opened the store, expected "
                "that one; call StateStore.open here"
            )
        error = self._writer.error if self._writer is not None else None
        if isinstance(error, StorageFullError):
            raise StorageFullError(str(error)) from error
        if error is not None:
            raise StoreStalledError(
                f"{self._live.path}: the writer thread ended with {error!r}; expected that it applies every step; "
                "what was committed before is intact: resume from the latest generation"
            ) from error

    def _wait_until(self, is_done: Callable[[], bool]) -> None:
        """Wait for the writer, here or in its own process; progress of any kind starts the clock again."""
        start = time.monotonic()
        applied = self._live.published.applied()
        deadline = start + self.stall_seconds
        while not is_done():
            self._pause(deadline)
            now_applied = self._live.published.applied()
            self._pending.forget(now_applied)
            if now_applied != applied:
                applied, deadline = now_applied, time.monotonic() + self.stall_seconds
            elif self._pending.nbytes == 0 and applied >= self._newest:
                break  # a single update that is larger than the bound
        self.wait_seconds += time.monotonic() - start

    def _pause(self, deadline: float) -> None:
        self._check_usable()
        if time.monotonic() > deadline:
            require_writer(self._live.path)
            raise StoreStalledError(
                f"{self._live.path}: step {self.applied_step} is the last that was written, {self._newest} is "
                f"expected, and nothing has moved for {self.stall_seconds:g} s; check the disk of this node, then "
                "resume from the latest generation"
            )
        time.sleep(0.0002)

    def _require_writer(self, call: str) -> None:
        if not self.is_writer:
            raise InputError(
                f"{call}: found a rank that only reads, expected the first rank of the node; call it there"
            )
