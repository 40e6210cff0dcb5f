"""Collects shards and rows on top of an old index, and writes them as its next generation."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from isogclr.durable import write_file
from isogclr.shard_index.addresses import UNKNOWN
from isogclr.shard_index.files import (
    ALIGNMENT,
    HEADER_NAME,
    NO_ROWS,
    ROWS_HEADER_BYTES,
    ROWS_MAGIC,
    SEGMENT,
    SHARD,
    TAR,
    Header,
    RowsFile,
    Tables,
    encode_tables,
    file_head,
    next_fingerprint,
    publish_header,
    remove_leftovers,
)
from isogclr.shard_index.ids import components
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.listing import Listing


@dataclass
class ShardRecord:
    """A line of the shard table while it is being built."""

    id: str
    url: str
    kind: int = TAR
    file_bytes: int = UNKNOWN
    modified_ns: int = UNKNOWN
    samples: int = 0
    digest: bytes = bytes(16)
    present: bool = False


class IndexWriter:
    """Gives out rows, and knows which shards there are."""

    def __init__(self, path: Path, old: ShardIndex | None) -> None:
        self.path = path
        self.old = old
        header = old.files.header if old else Header(0, 0, NO_ROWS, "", 0, 0, ())
        self.header = replace(header, generation=header.generation + 1)
        self.shards = _old_records(old) if old else []
        self.notes: list[str] = []
        self._segments: list[tuple[int, ...]] = old.files.tables.segments.tolist() if old else []
        self._first_new_row = header.number_of_rows
        self._next_byte = ROWS_HEADER_BYTES

    def add_listing(self, shard: int, listing: Listing) -> bytes | None:
        """Take over what was read of a shard; returns the bytes of its new rows, None if there are none."""
        record = self.shards[shard]
        ends, keys = listing.ends, listing.keys
        if self.old is not None and shard < self.old.number_of_shards:
            ends, keys = self._new_keys(shard, listing)
        record.file_bytes, record.modified_ns = listing.file_bytes, listing.modified_ns
        record.samples, record.digest = len(listing.ends), listing.digest
        return (
            self.add_rows(shard, len(ends), ends.astype("<u4").tobytes() + keys, len(keys)) if len(ends) else None
        )

    def add_rows(self, shard: int, rows: int, data: bytes = b"", key_bytes: int = 0) -> bytes:
        """Give out the next rows; returns the bytes of the segment."""
        head, record = self.header, self.shards[shard]
        data += bytes(-len(data) % ALIGNMENT)
        place = (head.number_of_rows, rows, self._next_byte, key_bytes)
        self._segments.append((shard, len(head.rows), *place, zlib.crc32(data), 0))
        self._next_byte += len(data)
        fingerprint = next_fingerprint(head.fingerprint, record.id, record.kind, rows, data)
        self.header = replace(head, number_of_rows=head.number_of_rows + rows, fingerprint=fingerprint)
        return data

    def _new_keys(self, shard: int, listing: Listing) -> tuple[npt.NDArray[np.uint32], bytes]:
        assert self.old is not None
        if listing.digest == self.shards[shard].digest:
            return listing.ends[:0], b""
        known = self.old.shard_rows(shard)
        keys = listing.key_list()
        new = [key for key in keys if key not in known]
        if keys and len(known) and len(new) == len(keys):
            url = self.shards[shard].url
            self.notes.append(
                f"shard {url} shares no key with what the index held under its name: another data set?"
            )
        return np.cumsum([len(key) for key in new], dtype=np.uint32), b"".join(new)

    def write(self, segments: Iterator[bytes]) -> None:
        """Write the files of this generation, then let them replace the old ones.

        `segments` calls `add_rows` as it goes, so that only the shard at hand is in memory.
        """
        written: list[Path] = []
        try:
            first = next(segments, None)
            if first is not None:
                written.append(self.path / f"rows-{self.header.generation}.bin")
                write_file(written[-1], _chain(file_head(ROWS_MAGIC), first, segments))
                self._add_rows_file(written[-1].name)
            tables = encode_tables(self._tables())
            written.append(self.path / f"tables-{self.header.generation}.bin")
            write_file(written[-1], [tables])
            place = {
                "tables_name": written[-1].name,
                "tables_bytes": len(tables),
                "tables_crc32": zlib.crc32(tables),
            }
            self.header = replace(self.header, **place)  # type: ignore[arg-type]
            publish_header(self.path, self.header)
        except BaseException:
            self._discard(written)
            raise
        with contextlib.suppress(OSError):  # the next build tries again
            remove_leftovers(self.path, self.header)

    def _add_rows_file(self, name: str) -> None:
        count = self.header.number_of_rows - self._first_new_row
        added = RowsFile(name, self._next_byte, self._first_new_row, count, self.header.fingerprint)
        self.header = replace(self.header, rows=(*self.header.rows, added))

    def _discard(self, written: list[Path]) -> None:
        """Remove the new files, unless the header that names them was published and only the last fsync failed."""
        with contextlib.suppress(OSError):
            if (self.path / HEADER_NAME).read_bytes() == self.header.encode():
                return
        for file in written:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)

    def _tables(self) -> Tables:
        shards = np.zeros(len(self.shards), dtype=SHARD)
        strings: list[bytes] = []
        position = 0
        for number, record in enumerate(self.shards):
            identity, url = (text.encode("utf-8", "surrogateescape") for text in (record.id, record.url))
            digest = np.frombuffer(record.digest, dtype=np.uint8)
            state = (
                record.file_bytes,
                record.modified_ns,
                record.samples,
                digest,
                record.kind,
                record.present,
            )
            shards[number] = (position, len(identity), len(url), *state, 0)
            strings += (identity, url)
            position += len(identity) + len(url)
        order = sorted(range(len(self.shards)), key=lambda number: components(self.shards[number].id))
        segments = np.array(self._segments, dtype=SEGMENT)
        return Tables(shards, segments, np.array(order, dtype=np.uint32), memoryview(b"".join(strings)))


def _chain(head: bytes, first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield first
    yield from rest


def _old_records(old: ShardIndex) -> list[ShardRecord]:
    tables = old.files.tables
    return [
        ShardRecord(
            id=tables.shard_id(shard),
            url=tables.url(shard),
            kind=int(record["kind"]),
            file_bytes=int(record["file_bytes"]),
            modified_ns=int(record["modified_ns"]),
            samples=int(record["samples"]),
            digest=record["digest"].tobytes(),
        )
        for shard, record in enumerate(tables.shards)
    ]
