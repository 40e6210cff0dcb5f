"""Files with holes: find the data in them, copy it and leave the holes out."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import numpy as np

from isogclr.durable import Buffer, pwrite_all
from isogclr.state.layout import PAGE_BYTES


def data_extents(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Byte ranges of a file that may hold anything but zeros; all of it where holes are not known."""
    while start < end:
        try:
            first = os.lseek(descriptor, start, os.SEEK_DATA)
            last = os.lseek(descriptor, first, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole is left
                return
            first, last = start, end  # no support: everything is data
        if first >= end:
            return
        yield first, min(last, end)
        start = last


def write_nonzero_pages(descriptor: int, data: Buffer, offset: int) -> int:
    """Write the pages of `data` that are not zero, into a file that has a hole there; bytes written."""
    pages = np.frombuffer(data, np.uint64).reshape(-1, PAGE_BYTES // 8)
    used = np.concatenate(([False], pages.any(axis=1), [False]))
    edges = np.flatnonzero(used[1:] != used[:-1])
    view = memoryview(data).cast("B")
    written = 0
    for first, last in edges.reshape(-1, 2).tolist():
        part = view[first * PAGE_BYTES : last * PAGE_BYTES]
        pwrite_all(descriptor, part, offset + first * PAGE_BYTES)
        written += len(part)
    return written


def read_exactly(descriptor: int, length: int, offset: int) -> bytearray:
    """Bytes of a file, as many as it has from there up to `length`: `os.preadv` may return fewer at a time."""
    data = bytearray(length)
    view = memoryview(data)
    filled = 0
    while filled < length:
        count = os.preadv(descriptor, [view[filled:]], offset + filled)
        if count == 0:
            break
        filled += count
    view.release()
    del data[filled:]
    return data
