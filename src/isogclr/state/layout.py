"""Where things are in a live file and in a snapshot. `docs/store_format.md` is the same in words.

Both begin with a header page that ends in its own checksum, followed by a second page (shared memory of the ranks
in a live file, zero in a snapshot) and the rows, in whole blocks. That the rows are at the same place in both lets
a file system clone the one into the other.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isogclr.errors import (
    DamagedFileError,
    ForeignFileError,
    InputError,
    NewerVersionError,
    TruncatedFileError,
)
from isogclr.state.schema import Schema

LIVE_MAGIC = b"ISOGLIVE"
SNAPSHOT_MAGIC = b"ISOGSNAP"
VERSION = 1
PAGE_BYTES = 4096
DATA_OFFSET = 2 * PAGE_BYTES
BLOCK_ROWS = 2048  # per checksum; with 4-byte columns a block is always a whole number of pages
MAX_ROWS = 1 << 36
_PREFIX = struct.Struct("<8sII")  # magic, version, length of the description
_CHECKSUM = struct.Struct("<I")
_KINDS = {LIVE_MAGIC: "live file of the state store", SNAPSHOT_MAGIC: "snapshot of the state store"}


@dataclass(frozen=True)
class Header:
    """What the first page of a file says.

    Args:
        schema: columns of a row.
        rows: how many rows there are.
        index_fingerprint: of the shard index that gave the rows their meaning.
        step: last step that is in a snapshot; None before the first. In a live file: the step it started from.
        run: random name of the process that created a live file, so that ranks of another run can not attach.
    """

    schema: Schema
    rows: int
    index_fingerprint: str
    step: int | None = None
    run: str = ""

    def __post_init__(self) -> None:
        if type(self.rows) is not int or not 0 <= self.rows <= MAX_ROWS:
            raise InputError(
                f"rows: found {self.rows!r}; expected an int from 0 to {MAX_ROWS:,}; or else split the data set"
            )
        if not 0 < len(self.index_fingerprint) <= 256 or not self.index_fingerprint.isascii():
            raise InputError(
                f"index_fingerprint: found {self.index_fingerprint!r}; expected 1 to 256 ASCII characters; "
                "pass the fingerprint of the shard index"
            )

    @property
    def blocks(self) -> int:
        return -(-self.rows // BLOCK_ROWS)

    @property
    def block_bytes(self) -> int:
        return BLOCK_ROWS * self.schema.row_bytes

    @property
    def data_bytes(self) -> int:
        """Bytes of all rows, the zero rows that fill the last block included."""
        return self.blocks * self.block_bytes

    @property
    def live_bytes(self) -> int:
        return DATA_OFFSET + self.data_bytes

    @property
    def snapshot_bytes(self) -> int:
        """As the live file, plus one CRC-32 per block and one over those."""
        return self.live_bytes + _CHECKSUM.size * (self.blocks + 1)


def encode_header(magic: bytes, header: Header) -> bytes:
    """The header page."""
    description = json.dumps(
        {
            "block_rows": BLOCK_ROWS,
            "columns": header.schema.describe(),
            "index_fingerprint": header.index_fingerprint,
            "rows": header.rows,
            "run": header.run,
            "step": header.step,
        },
        sort_keys=True,
    ).encode("ascii")
    page = _PREFIX.pack(magic, VERSION, len(description)) + description
    if len(page) > PAGE_BYTES - _CHECKSUM.size:
        raise InputError(
            f"state_columns: their names take {len(page)} bytes; expected a header of at most "
            f"{PAGE_BYTES - _CHECKSUM.size}; use shorter or fewer column names"
        )
    page = page.ljust(PAGE_BYTES - _CHECKSUM.size, b"\0")
    return page + _CHECKSUM.pack(zlib.crc32(page))


def decode_header(magic: bytes, page: bytes, path: Path) -> Header:
    """The meaning of a header page; every way in which it can be wrong has its own error."""
    kind = _KINDS[magic]
    if not magic.startswith(page[: len(magic)]):
        raise ForeignFileError(_foreign(page, kind, path))
    if len(page) < PAGE_BYTES:
        raise TruncatedFileError(
            f"{path}: found {len(page)} bytes, expected a header of {PAGE_BYTES}: the {kind} was cut short; "
            "use another generation"
        )
    _, version, length = _PREFIX.unpack_from(page)
    (checksum,) = _CHECKSUM.unpack_from(page, PAGE_BYTES - _CHECKSUM.size)
    found = zlib.crc32(page[: PAGE_BYTES - _CHECKSUM.size])
    if found != checksum:
        raise DamagedFileError(
            f"{path}: the header has checksum {found:08x}, expected {checksum:08x}: the {kind} is damaged; "
            "use another generation, and check the disk"
        )
    if version > VERSION:
        raise NewerVersionError(
            f"{path}: found version {version} of the format, expected at most {VERSION}: "
            "it was written by a newer isogclr; install that release"
        )
    try:
        return _parse(page[_PREFIX.size : _PREFIX.size + length])
    except (ValueError, KeyError, TypeError, InputError) as error:
        raise DamagedFileError(
            f"{path}: the header is intact but makes no sense ({error}); expected what docs/store_format.md says; "
            "use another generation"
        ) from error


def _parse(description: bytes) -> Header:
    fields: dict[str, Any] = json.loads(description)
    if fields["block_rows"] != BLOCK_ROWS:
        raise ValueError(f"block_rows {fields['block_rows']!r}")
    step = fields["step"]
    if type(fields["rows"]) is not int or (step is not None and type(step) is not int):
        raise ValueError(f"rows {fields['rows']!r}, step {step!r}")
    return Header(
        schema=Schema.from_description(fields["columns"]),
        rows=fields["rows"],
        index_fingerprint=str(fields["index_fingerprint"]),
        step=step,
        run=str(fields["run"]),
    )


def _foreign(page: bytes, kind: str, path: Path) -> str:
    other = _KINDS.get(page[:8])
    found = f"a {other}" if other else f"a file that begins with {page[:8]!r}"
    return f"{path}: found {found}, expected a {kind}; check the path"


def check_size(found: int, expected: int, path: Path) -> None:
    """A file is as long as its header says, to the byte."""
    if found != expected:
        raise TruncatedFileError(
            f"{path}: found {found} bytes, expected {expected} for the rows that the header names: "
            "the file was cut short or something was appended; use another generation"
        )
