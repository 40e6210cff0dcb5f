"""Walk the headers of an ordinary tar file without reading its payload.

Python's `tarfile` decides what is in an archive, since webdataset asks it. It costs some 15 microseconds per
member, though, so members of the two ordinary kinds are recognised here: a plain regular file, and one with a pax
header that changes nothing but times, owners and the name. Whatever else turns up (links, sparse files, GNU long
names, damage, the end) ends the walk, and `tarfile` goes on from that byte. Both read the same members; a test
compares.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

BLOCK = 512
Blocks = npt.NDArray[np.uint8]  # [headers, bytes]
_BATCH_MEMBERS = 4096  # their headers, some 2 MB, are held until all checksums are computed at once
_LONGEST_EXTENDED = 64 * BLOCK
_REGULAR, _EXTENDED = ord("0"), ord("x")
_TYPE = 156

# Extended records that do not change where the next header is, nor which bytes are the payload.
_HARMLESS = frozenset((b"mtime", b"atime", b"ctime", b"uid", b"gid", b"uname", b"gname", b"path"))
_ONE_TIME = re.compile(rb"(\d+) [acm]time=[0-9.]+\n")  # all that most pax headers hold

# The octal fields: mode, uid, gid, size, mtime and checksum, then the two device numbers.
_NUMBERS, _SIZE, _CHECKSUM, _DEVICES = slice(100, 156), slice(124, 136), slice(148, 156), slice(329, 345)
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


def read_ordinary_members(descriptor: int, file_bytes: int) -> tuple[Members, int]:
    """The members up to the first that is not ordinary, and the byte where that one begins."""
    members, offset, complete = Members(), 0, True
    while complete:
        batch = _Batch()
        offset, complete = batch.read(descriptor, file_bytes, offset)
        blocks = _blocks(batch.headers)
        good = batch.number_of_good(blocks)
        if good < len(blocks):
            offset, complete = batch.starts[good], False
        members.names += batch.names(blocks[:good])
        members.sizes += _octal(blocks[:good, _SIZE]).tolist()
    return members, offset


@dataclass
class _Batch:
    """Consecutive members whose checksums have not been looked at yet."""

    starts: list[int] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    extended: list[bytes] = field(default_factory=list)  # pax headers in front of some of the headers
    owners: list[int] = field(default_factory=list)  # the numbers of the members that these belong to
    long_names: dict[int, bytes] = field(default_factory=dict)  # names that they give

    def read(self, descriptor: int, file_bytes: int, offset: int) -> tuple[int, bool]:
        """Returns where to go on, and whether the batch is full; it is not if no ordinary member stands there.

        A build spends its time in this loop, so a plain member costs nothing here but finding the next one.
        """
        pread, headers, starts = os.pread, self.headers, self.starts
        for _ in range(_BATCH_MEMBERS):
            start = offset
            header = pread(descriptor, BLOCK, offset)
            offset += BLOCK
            try:
                if header[_TYPE] == _EXTENDED:
                    header, offset = self._read_extended(descriptor, offset, header)
                if header[_TYPE] != _REGULAR:
                    return start, False
                size = int(header[124:135], 8)
            except (IndexError, ValueError):  # the end of the file, or no octal number
                return start, False
            if not 0 <= size <= file_bytes - offset:  # also if the header itself is cut off
                return start, False
            headers.append(header)
            starts.append(start)
            offset += (size + 511) & ~511
        return offset, True

    def _read_extended(self, descriptor: int, offset: int, extended: bytes) -> tuple[bytes, int]:
        """The header behind a pax header, and its end. ValueError if the pax header is not ordinary."""
        size = int(extended[124:135], 8)
        rest = (size + 511) & ~511
        if not 0 < size <= _LONGEST_EXTENDED or len(extended) < BLOCK:
            raise ValueError
        body = os.pread(descriptor, rest + BLOCK, offset)
        name = _extended_name(body[:size])
        if name:
            self.long_names[len(self.starts)] = name
        self.extended.append(extended)
        self.owners.append(len(self.starts))
        return body[rest:], offset + rest + BLOCK

    def number_of_good(self, blocks: Blocks) -> int:
        """How many members come before the first with a damaged header."""
        good = _number_of_good(blocks)
        good_extended = _number_of_good(_blocks(self.extended))
        return min(good, self.owners[good_extended]) if good_extended < len(self.extended) else good

    def names(self, blocks: Blocks) -> list[bytes]:
        """A name ends at the first zero byte; a header may hold the beginning of a long one apart."""
        columns = np.ascontiguousarray(blocks[:, :100])
        names: list[bytes] = columns.view("S100").ravel().tolist()  # without the zeros at the end
        again = ((columns[:, 1:] != 0) & (columns[:, :-1] == 0)).any(axis=1)  # something behind the first zero
        for number in np.flatnonzero(again).tolist():
            names[number] = names[number].partition(b"\0")[0]
        for number in np.flatnonzero(blocks[:, 345]).tolist():
            names[number] = self.headers[number][345:500].partition(b"\0")[0] + b"/" + names[number]
        for number, name in self.long_names.items():
            if number < len(names):
                names[number] = name
        return names


def _extended_name(body: bytes) -> bytes:
    """The name that a pax header gives, or nothing. ValueError unless it is well-formed and harmless.

    A record is `length keyword=value` and a line feed; the length counts all of it. The last name wins, and
    `tarfile` takes slashes off its end.
    """
    only_time = _ONE_TIME.fullmatch(body)
    if only_time is not None and int(only_time[1]) == len(body):
        return b""
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


def _blocks(headers: list[bytes]) -> Blocks:
    return np.frombuffer(b"".join(headers), dtype=np.uint8).reshape(-1, BLOCK)


def _number_of_good(blocks: Blocks) -> int:
    """How many headers come before the first with a wrong checksum or a number that needs the full parser."""
    ordinary = _is_octal(blocks[:, _NUMBERS], _WITHIN_NUMBERS) & _is_octal(blocks[:, _DEVICES], _WITHIN_DEVICES)
    ordinary &= _KIND[blocks[:, _SIZE.stop - 1]] == _FILLER  # twelve digits: the size that was taken is too short
    # The checksum is taken with spaces in its own field, eight times 32.
    fields = blocks[:, _CHECKSUM]
    computed = blocks.sum(axis=1, dtype=np.uint32) - fields.sum(axis=1, dtype=np.uint32) + 256
    wrong = np.flatnonzero(~ordinary | (_octal(fields) != computed))
    return int(wrong[0]) if len(wrong) else len(blocks)


def _octal(fields: Blocks) -> npt.NDArray[np.int64]:
    """The numbers in fields that `_is_octal` accepts."""
    value = np.zeros(len(fields), dtype=np.int64)
    for column in fields.T:
        value = np.where(_KIND[column] == _DIGIT, value * 8 + (column & 7), value)
    return value


def _is_octal(fields: Blocks, within: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Whether every field of a header is digits first, then spaces or zeros: no signs, no base 256, no `12 34`."""
    kinds = _KIND[fields]
    rises = (kinds[:, 1:] > kinds[:, :-1]) & within
    ordinary: npt.NDArray[np.bool_] = ~((kinds == _OTHER).any(axis=1) | rises.any(axis=1))
    return ordinary
