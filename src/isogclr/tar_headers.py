"""Walk the headers of an ordinary tar file without reading its payload.

Python's `tarfile` decides what is in an archive, since webdataset asks it. It costs some 15 microseconds a member,
though, so members of the two ordinary kinds are recognised here: a plain regular file, and one with a pax header
that changes nothing but times, owners and the name. Whatever else turns up (links, sparse files, GNU long names,
damage, the end) ends the walk, and `tarfile` goes on from that byte. Both read the same members; a test compares.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

BLOCK = 512
_BATCH_MEMBERS = 4096  # their headers, some 2 MB, are held until all checksums are computed at once
_LONGEST_EXTENDED = 64 * BLOCK
_REGULAR, _EXTENDED = ord("0"), ord("x")
_TYPE = 156

# Extended records that do not change where the next header is, nor which bytes are the payload.
_HARMLESS = frozenset((b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"path"))

# The octal fields: mode, uid, gid, size, mtime and checksum, then the two device numbers.
_NUMBERS, _DEVICES, _CHECKSUM = slice(100, 156), slice(329, 345), slice(148, 156)
_WITHIN_NUMBERS = ~np.isin(np.arange(101, 156), (108, 116, 124, 136, 148))
_WITHIN_DEVICES = ~np.isin(np.arange(330, 345), (337,))
_FILLER, _DIGIT, _OTHER = 0, 1, 2
_KIND = np.full(256, _OTHER, dtype=np.uint8)
_KIND[np.frombuffer(b"\0 ", dtype=np.uint8)] = _FILLER
_KIND[np.frombuffer(b"01234567", dtype=np.uint8)] = _DIGIT


@dataclass
class Members:
    """Regular files of an archive: name as bytes, size of the payload in bytes."""

    names: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def cut(self, count: int) -> None:
        del self.names[count:], self.sizes[count:]


def read_ordinary_members(descriptor: int, file_bytes: int) -> tuple[Members, int]:
    """The members up to the first that is not ordinary, and the byte where that one begins."""
    members, offset = Members(), 0
    while True:
        offset, complete = _read_batch(descriptor, file_bytes, offset, members)
        if not complete:
            return members, offset


def _read_batch(descriptor: int, file_bytes: int, offset: int, members: Members) -> tuple[int, bool]:
    """Append up to `_BATCH_MEMBERS` members. The flag is false when something else than an ordinary member came."""
    headers: list[bytes] = []
    owners: list[int] = []  # which member a header belongs to, counted within the batch
    starts: list[int] = []
    known = len(members.names)
    complete = True
    while len(starts) < _BATCH_MEMBERS:
        found = _read_member(descriptor, offset, file_bytes)
        if found is None:
            complete = False
            break
        blocks, name, size, end = found
        headers.extend(blocks)
        owners.extend([len(starts)] * len(blocks))
        starts.append(offset)
        members.names.append(name)
        members.sizes.append(size)
        offset = end
    damaged = _first_damaged(headers)
    if damaged is not None:
        members.cut(known + owners[damaged])
        return starts[owners[damaged]], False
    return offset, complete


def _read_member(descriptor: int, offset: int, file_bytes: int) -> tuple[tuple[bytes, ...], bytes, int, int] | None:
    """Header blocks, name, payload size and end of an ordinary member; None if it is not one."""
    header = os.pread(descriptor, BLOCK, offset)
    if len(header) < BLOCK:
        return None
    offset += BLOCK
    blocks: tuple[bytes, ...] = (header,)
    name = b""
    try:
        if header[_TYPE] == _EXTENDED:
            size = int(header[124:135], 8)
            rest = (size + 511) & ~511
            if (
                not 0 < size <= _LONGEST_EXTENDED
                or len(body := os.pread(descriptor, rest + BLOCK, offset)) < rest + BLOCK
            ):
                return None
            name = _extended_name(body[:size])
            header = body[rest:]
            blocks = (blocks[0], header)
            offset += rest + BLOCK
        if header[_TYPE] != _REGULAR:
            return None
        size = int(header[124:135], 8)
    except ValueError:
        return None
    if size < 0 or offset + size > file_bytes:
        return None
    return blocks, name or _name(header), size, offset + ((size + 511) & ~511)


def _name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    if header[345]:
        return header[345:500].partition(b"\0")[0] + b"/" + name
    return name


def _extended_name(body: bytes) -> bytes:
    """The name that a pax header gives, or nothing. ValueError unless it is well-formed and harmless.

    A record is `length keyword=value` and a line feed; the length counts all of it. The last name wins, and
    `tarfile` takes slashes off its end.
    """
    name = b""
    position = 0
    while position < len(body):
        digits = body[position : position + 8].partition(b" ")[0]
        end = position + int(digits)
        keyword, _, value = body[position + len(digits) + 1 : end - 1].partition(b"=")
        if keyword not in _HARMLESS or not digits.isdigit() or body[end - 1 : end] != b"\n" or b"\0" in value:
            raise ValueError
        if keyword == b"path":
            name = value.rstrip(b"/")
            if not name:
                raise ValueError
        position = end
    return name


def _first_damaged(headers: list[bytes]) -> int | None:
    """The first header with a wrong checksum or an octal field that needs the full parser."""
    if not headers:
        return None
    blocks: npt.NDArray[np.uint8] = np.frombuffer(b"".join(headers), dtype=np.uint8).reshape(-1, BLOCK)
    ordinary = _is_octal(blocks[:, _NUMBERS], _WITHIN_NUMBERS) & _is_octal(blocks[:, _DEVICES], _WITHIN_DEVICES)
    stored = np.array(
        [
            int(header[_CHECKSUM].rstrip(b"\0 ") or b"0", 8) if good else -1
            for header, good in zip(headers, ordinary, strict=True)
        ],
        dtype=np.int64,
    )
    # The checksum is taken with spaces in its own field, eight times 32.
    computed = blocks.sum(axis=1, dtype=np.uint32) - blocks[:, _CHECKSUM].sum(axis=1, dtype=np.uint32) + 256
    damaged = np.flatnonzero(stored != computed)
    return int(damaged[0]) if len(damaged) else None


def _is_octal(fields: npt.NDArray[np.uint8], within: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether every field of a header is digits first, then spaces or zeros: no signs, no base 256, no `12 34`."""
    kinds = _KIND[fields]
    rises = (kinds[:, 1:] > kinds[:, :-1]) & within
    ordinary: npt.NDArray[np.bool_] = ~((kinds == _OTHER).any(axis=1) | rises.any(axis=1))
    return ordinary
