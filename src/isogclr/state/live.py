"""The live file: all rows, mapped by every rank of a node. Scratch: nothing in it outlives its writer process."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt

from isogclr.durable import pwrite_all, temporary_name
from isogclr.errors import ForeignFileError, StoreAbandonedError
from isogclr.state.faults import storage_errors
from isogclr.state.filesystem import reading_allocates, writing_allocates
from isogclr.state.layout import (
    DATA_OFFSET,
    LIVE_MAGIC,
    PAGE_BYTES,
    Header,
    check_size,
    decode_header,
    encode_header,
)
from isogclr.state.published import Published
from isogclr.state.schema import Values
from isogclr.state.sparse import read_exactly

Fill = Callable[[int], None]  # writes rows into the descriptor of a file that is one hole


class LiveFile:
    """A mapped live file. Use `create` in the writer process and `attach` in the others.

    Attributes:
        data: the rows, read-only in a process that has attached.
        cells: the same as bytes.
        published: which steps they contain.
        reading_allocates: a row that is read may take space, too.
        writing_allocates: a row that is written may take space although its page exists.
    """

    def __init__(self, path: Path, descriptor: int, header: Header, *, writable: bool) -> None:
        self.path = path
        self.descriptor = descriptor
        self.header = header
        self.reading_allocates = reading_allocates(path)
        self.writing_allocates = writing_allocates(path)
        self._has_no_holes = False  # that is known
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._mapping = mmap.mmap(descriptor, header.live_bytes, mmap.MAP_SHARED, access)
        self._mapping.madvise(mmap.MADV_RANDOM)  # else each fault reads 128 KiB for 32 bytes
        self.cells: npt.NDArray[np.uint8] = np.frombuffer(self._mapping, np.uint8, header.data_bytes, DATA_OFFSET)
        self.data: Values = self.cells.view(header.schema.dtype)
        self.published = Published(self._mapping)

    @classmethod
    def create(cls, path: Path, header: Header, fill: Fill | None = None) -> LiveFile:
        """A new sparse file in the place of an old one. The old one is replaced when the new one is complete."""
        _refuse_foreign(path)
        for rubbish in path.parent.glob(f".partial-{path.name}-*"):
            rubbish.unlink(missing_ok=True)
        partial = temporary_name(path)
        with storage_errors(path, "create the live file"):
            descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                os.ftruncate(descriptor, header.live_bytes)
                if fill is not None:
                    fill(descriptor)
                pwrite_all(descriptor, encode_header(LIVE_MAGIC, header) + bytes(PAGE_BYTES), 0)
                partial.rename(path)
            except BaseException:
                os.close(descriptor)
                partial.unlink(missing_ok=True)
                raise
        return cls(path, descriptor, header, writable=True)

    @classmethod
    def attach(cls, path: Path) -> LiveFile:
        """Map the file of another process for reading."""
        if not path.is_file():
            raise StoreAbandonedError(
                f"{path}: found no live file; expected that the first rank of the node has created it; "
                "create or restore the store there first"
            )
        descriptor = os.open(path, os.O_RDONLY)
        try:
            header = decode_header(LIVE_MAGIC, bytes(read_exactly(descriptor, PAGE_BYTES, 0)), path)
            check_size(os.fstat(descriptor).st_size, header.live_bytes, path)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, header, writable=False)

    def has_room(self, rows: int, reserve_bytes: int) -> bool:
        """Whether pages for so many rows can be allocated and `reserve_bytes` stay free.

        A page that can not be allocated under a mapping is a SIGBUS, the end of the process. So whoever is about to
        touch pages must ask first; the reserve is for what others allocate between the answer and the touch.
        """
        if self._has_no_holes and not self.writing_allocates:
            return True
        status = os.fstat(self.descriptor)
        # a row may lie on two pages; where pages are written in place, only holes take space
        fillable = status.st_size - (0 if self.writing_allocates else status.st_blocks * 512)
        needed = min(2 * rows * PAGE_BYTES, fillable)
        if needed <= 0:
            self._has_no_holes = True  # holes do not come back
            return True
        disk = os.fstatvfs(self.descriptor)
        return disk.f_bavail * disk.f_frsize >= reserve_bytes + needed

    def close(self) -> None:
        del self.data, self.cells, self.published
        with suppress(BufferError):  # the traceback of an error may hold an array; the mapping then ends with it
            self._mapping.close()
        os.close(self.descriptor)


def _refuse_foreign(path: Path) -> None:
    """Never replace a file that is not ours."""
    if not path.exists():
        return
    found = b"a directory"
    if path.is_file():
        with path.open("rb") as file:
            found = file.read(len(LIVE_MAGIC))
    if found != LIVE_MAGIC:
        raise ForeignFileError(
            f"{path}: found {found!r} at its beginning, expected nothing or an old live file of the state store, "
            "which would be replaced; move it away or choose another state directory"
        )
