"""The files of a shard index: layout, checks, publication. `docs/index_format.md` describes every byte.

`index.json` names all other files and is replaced last, so a reader sees the old index or the new one. The others
are never changed once they are written: a build adds one file with the keys of the new rows, and one with the
tables of all shards. So growing a data set does not even touch the bytes that hold the old rows.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.durable import Buffer, fsync_directory, replace_file
from isogclr.errors import IndexNotFoundError, ShardIndexError

FORMAT, VERSION = "isogclr shard index", 1
HEADER_NAME, LOCK_NAME = "index.json", "lock"
_OURS = re.compile(rf"(rows|tables)-\d+\.bin|\.partial-{re.escape(HEADER_NAME)}-\d+-[0-9a-f]{{8}}")
ROWS_MAGIC, TABLES_MAGIC = b"ISOGROWS", b"ISOGTABL"
ROWS_HEADER_BYTES, TABLES_HEADER_BYTES = 16, 40
ALIGNMENT = 8
TAR, CSV, FOLDER, CIFAR = 0, 1, 2, 3  # kinds of shards
NO_ROWS = hashlib.sha256(b"isogclr shard index, rows, version 1").hexdigest()  # fingerprint of an empty index

SHARD = np.dtype(
    [
        ("strings_start", "<u8"),
        ("id_bytes", "<u4"),
        ("url_bytes", "<u4"),
        ("file_bytes", "<i8"),
        ("modified_ns", "<i8"),
        ("samples", "<u8"),
        ("digest", "u1", (16,)),
        ("kind", "u1"),
        ("present", "u1"),
        ("reserved", "u1", (6,)),
    ]
)
SEGMENT = np.dtype(
    [
        ("shard", "<u4"),
        ("file", "<u4"),
        ("first_row", "<u8"),
        ("rows", "<u8"),
        ("start", "<u8"),
        ("key_bytes", "<u8"),
        ("crc32", "<u4"),
        ("reserved", "<u4"),
    ]
)


@dataclass(frozen=True)
class RowsFile:
    """One file of keys; `fingerprint` is that of the index up to its last row."""

    name: str
    bytes: int
    first_row: int
    number_of_rows: int
    fingerprint: str


@dataclass(frozen=True)
class Header:
    """The content of `index.json`, but for magic, version and checksum."""

    generation: int
    number_of_rows: int
    fingerprint: str
    tables_name: str
    tables_bytes: int
    tables_crc32: int
    rows: tuple[RowsFile, ...]

    def encode(self) -> bytes:
        body = {"format": FORMAT, "version": VERSION, **asdict(self)}
        body["checksum"] = hashlib.sha256(_canonical(body)).hexdigest()
        return _canonical(body)


def _canonical(body: dict[str, Any]) -> bytes:
    """The only spelling that is accepted: a changed blank is damage too."""
    return json.dumps(body, indent=1, ensure_ascii=True).encode("ascii") + b"\n"


def read_header(path: Path) -> Header:
    try:
        raw = (path / HEADER_NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise IndexNotFoundError(
            f"there is no shard index at {path}: build one with `isogclr index build`"
        ) from None
    return decode_header(raw, path)


def decode_header(raw: bytes, path: Path) -> Header:
    where = path / HEADER_NAME
    try:
        body = json.loads(raw)
    except ValueError as error:  # UnicodeDecodeError is one too
        raise damaged(where, f"is no JSON ({error})") from None
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        found = body.get("format") if isinstance(body, dict) else type(body).__name__
        raise ShardIndexError(f"{where} is no shard index: found format {found!r}, expected {FORMAT!r}")
    version = body.get("version")
    if isinstance(version, int) and version > VERSION:
        raise ShardIndexError(
            f"{where} has version {version}, this isogclr reads version {VERSION}: install a newer isogclr"
        )
    checksum = body.pop("checksum", None)
    expected = hashlib.sha256(_canonical(body)).hexdigest()
    if version != VERSION or checksum != expected or _canonical({**body, "checksum": checksum}) != raw:
        raise damaged(where, f"has checksum {checksum}, expected {expected}")
    del body["format"], body["version"]
    return Header(**{**body, "rows": tuple(RowsFile(**one) for one in body["rows"])})


def damaged(where: Path, what: str) -> ShardIndexError:
    return ShardIndexError(
        f"{where} {what}: restore it from a copy; an index that is built anew gives the same rows only if it is "
        "built from the same shards in the same order"
    )


@dataclass
class Tables:
    """Everything whose length is the number of shards."""

    shards: npt.NDArray[np.void]
    segments: npt.NDArray[np.void]
    order: npt.NDArray[np.uint32]  # shards, sorted by the `components` of their ids
    strings: memoryview

    def shard_id(self, shard: int) -> str:
        record = self.shards[shard]
        start = int(record["strings_start"])
        return _text(self.strings[start : start + int(record["id_bytes"])])

    def url(self, shard: int) -> str:
        record = self.shards[shard]
        start = int(record["strings_start"]) + int(record["id_bytes"])
        return _text(self.strings[start : start + int(record["url_bytes"])])


def _text(data: memoryview) -> str:
    return bytes(data).decode("utf-8", "surrogateescape")


def encode_tables(tables: Tables) -> bytes:
    counts = np.array([len(tables.shards), len(tables.segments), len(tables.strings)], dtype="<u8")
    head = TABLES_MAGIC + np.array([VERSION, 0], dtype="<u4").tobytes() + counts.tobytes()
    return b"".join(
        (
            head,
            tables.shards.tobytes(),
            tables.segments.tobytes(),
            tables.order.astype("<u4").tobytes(),
            tables.strings,
        )
    )


def _decode_tables(data: memoryview, where: Path) -> Tables:
    """A view into the mapped file; nothing is copied."""
    shards, segments, strings = np.frombuffer(data[16:TABLES_HEADER_BYTES], dtype="<u8").tolist()
    position = TABLES_HEADER_BYTES
    found: list[npt.NDArray[Any]] = []
    for dtype, count in ((SHARD, shards), (SEGMENT, segments), (np.dtype("<u4"), shards)):
        found.append(np.frombuffer(data, dtype=dtype, count=count, offset=position))
        position += dtype.itemsize * count
    if position + strings != len(data):
        raise damaged(where, f"has {len(data):,} bytes, its counts ask for {position + strings:,}")
    return Tables(found[0], found[1], found[2], data[position:])


@dataclass
class IndexFiles:
    """An index that is open for reading, all files mapped."""

    path: Path
    header: Header
    tables: Tables
    rows: list[memoryview] = field(default_factory=list)

    def segment_bytes(self, segment: npt.NDArray[np.void] | np.void) -> memoryview:
        """Ends and keys of a segment with its padding, after a look at its checksum."""
        start, count = int(segment["start"]), segment_size(int(segment["rows"]), int(segment["key_bytes"]))
        data = self.rows[int(segment["file"])][start : start + count]
        found, expected = zlib.crc32(data), int(segment["crc32"])
        if found != expected or len(data) != count:
            where = self.path / self.header.rows[int(segment["file"])].name
            raise damaged(
                where, f"has checksum {found:08x} at bytes {start:,} to {start + count:,}, not {expected:08x}"
            )
        return data


def segment_size(rows: int, key_bytes: int) -> int:
    """Bytes of a segment in a file of keys: the ends, the keys, and zeros up to the next multiple of 8."""
    if key_bytes == 0 and rows:
        return 0  # the samples of a table have positions, not keys
    return -(-(4 * rows + key_bytes) // ALIGNMENT) * ALIGNMENT


def open_files(path: Path) -> IndexFiles:
    """Map an index. Checks the header, the tables, and the size and magic of every file of keys."""
    header = read_header(path)
    while True:
        try:
            return _open_files(path, header)
        except FileNotFoundError as error:
            latest = read_header(path)  # a build may just have replaced the index and removed the old tables
            if latest == header:
                raise damaged(path / Path(error.filename).name, "is missing") from None
            header = latest


def _open_files(path: Path, header: Header) -> IndexFiles:
    where = path / header.tables_name
    data = _map(where, header.tables_bytes, TABLES_MAGIC)
    if zlib.crc32(data) != header.tables_crc32:
        raise damaged(where, f"has checksum {zlib.crc32(data):08x}, expected {header.tables_crc32:08x}")
    files = IndexFiles(path, header, _decode_tables(data, where))
    files.rows.extend(_map(path / one.name, one.bytes, ROWS_MAGIC) for one in header.rows)
    return files


def _map(where: Path, expected_bytes: int, magic: bytes) -> memoryview:
    with where.open("rb") as file:
        found_bytes = os.fstat(file.fileno()).st_size
        if found_bytes != expected_bytes:
            raise damaged(where, f"has {found_bytes:,} bytes, expected {expected_bytes:,}")
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    if bytes(data[:ROWS_HEADER_BYTES]) != file_head(magic)[:ROWS_HEADER_BYTES]:
        raise damaged(where, f"begins with {bytes(data[:ROWS_HEADER_BYTES])!r}, expected {file_head(magic)!r}")
    return data


def file_head(magic: bytes) -> bytes:
    return magic + np.array([VERSION, 0], dtype="<u4").tobytes()


def publish_header(path: Path, header: Header) -> None:
    """The moment in which the new index replaces the old one. The names it mentions are made durable first."""
    fsync_directory(path)
    replace_file(path / HEADER_NAME, [header.encode()])


def remove_leftovers(path: Path, header: Header | None) -> None:
    """Delete what killed builds and replaced generations left. Only the holder of the lock may."""
    keep = {HEADER_NAME, LOCK_NAME}
    if header is not None:
        keep |= {header.tables_name, *(one.name for one in header.rows)}
    for file in path.iterdir():
        if is_ours(file.name) and file.name not in keep:
            file.unlink(missing_ok=True)


def is_ours(name: str) -> bool:
    return name in (HEADER_NAME, LOCK_NAME) or _OURS.fullmatch(name) is not None


def next_fingerprint(fingerprint: str, identity: str, kind: int, rows: int, data: Buffer) -> str:
    """A chain over the segments: equal fingerprints mean that every row stands for the same shard id and key."""
    name = identity.encode("utf-8", "surrogateescape")
    digest = hashlib.sha256(bytes.fromhex(fingerprint))
    digest.update(np.array([len(name), kind, rows], dtype="<u8").tobytes() + name)
    digest.update(data)
    return digest.hexdigest()
