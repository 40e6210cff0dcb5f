"""Snapshots: the rows of a store as they were at one step, with one checksum per block.

A file is written once and never changed. It is sparse: pages of zeros are left out, so a store of which little was
visited is small on disk however many rows it has.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from isogclr.durable import Buffer, clone, pwrite_all
from isogclr.errors import DamagedFileError, ForeignFileError
from isogclr.state.blocks import BlockChecksums, Checksums, chunks_of, zero_checksum
from isogclr.state.faults import storage_errors
from isogclr.state.layout import (
    BLOCK_ROWS,
    DATA_OFFSET,
    PAGE_BYTES,
    SNAPSHOT_MAGIC,
    Header,
    check_size,
    decode_header,
    encode_header,
)
from isogclr.state.schema import Values
from isogclr.state.sparse import data_extents, read_exactly, write_nonzero_pages

ReadRows = Callable[[int, int], Buffer]  # offset in the data and length, both in bytes


@dataclass(frozen=True)
class SnapshotInfo:
    """What a snapshot has cost: logged with `--debug`.

    Args:
        blocks_used: that were read: all that may not be zero; of a clone only those with a checksum out of date.
        bytes_copied: of rows; none if the file system lets the snapshot share them.
        cloned: whether it does. A page of the live file is then copied when it is next written, which takes space.
    """

    blocks_used: int
    bytes_copied: int
    cloned: bool


def write_snapshot(
    path: Path, header: Header, read: ReadRows, checksums: BlockChecksums, live: int | None = None
) -> SnapshotInfo:
    """Write a snapshot and make it durable; a failure leaves no file behind.

    Args:
        path: must not exist.
        header: of the store, with the step that the rows are of.
        read: gives the rows as bytes; nobody may write them meanwhile.
        checksums: of the store; brought up to date on the way.
        live: descriptor of the live file, to be cloned if the file system can share extents.
    """
    with storage_errors(path, "write a snapshot"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            info = _write(descriptor, replace(header, run=""), read, checksums, live)
            os.fsync(descriptor)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
    return info


def _write(
    descriptor: int, header: Header, read: ReadRows, checksums: BlockChecksums, live: int | None
) -> SnapshotInfo:
    cloned = live is not None and clone(live, descriptor)
    os.ftruncate(descriptor, header.snapshot_bytes)
    used = copied = 0
    for first, last in checksums.stale_chunks() if cloned else checksums.used_chunks():
        offset = first * checksums.block_bytes
        data = read(offset, (last - first) * checksums.block_bytes)
        checksums.update(first, data)
        used += last - first
        if not cloned:
            copied += write_nonzero_pages(descriptor, data, DATA_OFFSET + offset)
    table = checksums.values().astype("<u4").tobytes()
    pwrite_all(descriptor, table + zlib.crc32(table).to_bytes(4, "little"), header.live_bytes)
    pwrite_all(descriptor, encode_header(SNAPSHOT_MAGIC, header) + bytes(PAGE_BYTES), 0)
    return SnapshotInfo(used, copied, cloned)


class Snapshot:
    """A snapshot opened for reading. Opening checks the header, the length and the table of checksums.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = _open(path)
        try:
            page = read_exactly(self._descriptor, PAGE_BYTES, 0)
            self.header = decode_header(SNAPSHOT_MAGIC, bytes(page), path)
            check_size(os.fstat(self._descriptor).st_size, self.header.snapshot_bytes, path)
            self.checksums = self._read_table()
            self.root_checksum = zlib.crc32(self.checksums.astype("<u4").tobytes(), zlib.crc32(page))
        except BaseException:
            os.close(self._descriptor)
            raise

    def _read_table(self) -> Checksums:
        if any(read_exactly(self._descriptor, PAGE_BYTES, PAGE_BYTES)):
            raise DamagedFileError(
                f"{self.path}: found data in the second page of a snapshot, expected zeros: the file is damaged; "
                "use another generation, and check the disk"
            )
        table = read_exactly(self._descriptor, 4 * (self.header.blocks + 1), self.header.live_bytes)
        found, expected = zlib.crc32(memoryview(table)[:-4]), int.from_bytes(table[-4:], "little")
        if found != expected:
            raise DamagedFileError(
                f"{self.path}: the table of checksums has checksum {found:08x}, expected {expected:08x}: the file "
                "is damaged; use another generation, and check the disk"
            )
        return np.frombuffer(table, "<u4", self.header.blocks).astype(np.uint32)

    def chunks(self) -> Iterator[tuple[int, bytearray]]:
        """Every block that is not a hole, verified, as (first block, bytes of one or more blocks).

        A block that lies in a hole must have the checksum of zeros; that is checked first, without reading.
        """
        size = self.header.block_bytes
        has_data = np.zeros(self.header.blocks, np.bool_)
        for start, end in data_extents(self._descriptor, DATA_OFFSET, self.header.live_bytes):
            has_data[(start - DATA_OFFSET) // size : -(-(end - DATA_OFFSET) // size)] = True
        for block in np.flatnonzero(~has_data & (self.checksums != zero_checksum(size)))[:1]:
            raise self._damaged(int(block), zero_checksum(size))
        for first, last in chunks_of(np.flatnonzero(has_data)):
            data = read_exactly(self._descriptor, (last - first) * size, DATA_OFFSET + first * size)
            for block in range(first, last):
                start = (block - first) * size
                found = zlib.crc32(memoryview(data)[start : start + size])
                if found != self.checksums[block]:
                    raise self._damaged(block, found)
            yield first, data

    def visited(self) -> Iterator[tuple[int, Values]]:
        """All rows of blocks that hold data, verified, as (first row, rows); what is left out is zero."""
        for first, data in self.chunks():
            first_row = first * BLOCK_ROWS
            rows = np.frombuffer(data, self.header.schema.dtype)
            yield first_row, rows[: self.header.rows - first_row]

    def verify(self) -> None:
        """Read everything; raises DamagedFileError at the first block that is not what was written."""
        for _ in self.chunks():
            pass

    def _damaged(self, block: int, found: int) -> DamagedFileError:
        first = block * BLOCK_ROWS
        last = min(first + BLOCK_ROWS, self.header.rows) - 1
        return DamagedFileError(
            f"{self.path}: block {block} (rows {first} to {last}) has checksum {found:08x}, expected "
            f"{int(self.checksums[block]):08x}: the snapshot is damaged; use another generation, and check the disk"
        )

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(path: Path) -> int:
    if not path.is_file():
        found = "a directory" if path.is_dir() else "nothing"
        raise ForeignFileError(f"{path}: found {found}, expected a snapshot of the state store; check the path")
    return os.open(path, os.O_RDONLY)
