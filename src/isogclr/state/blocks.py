"""One CRC-32 for each block of rows, computed again only for blocks that were written.

CRC-32 finds every change of up to 32 adjacent bits, so every flip of a single byte, and misses other accidents with
probability 2^-32 per block. It is no protection against somebody who forges a file.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from isogclr.durable import Buffer

Checksums = npt.NDArray[np.uint32]
_STALE, _CHANGED = np.uint8(1), np.uint8(2)  # checksum out of date; written since the last commit
_CHUNK_BLOCKS = 64  # read at a time: 4 MiB with rows of 32 bytes


class BlockChecksums:
    """The checksums of a store and which of them are out of date.

    Args:
        block_bytes: size of a block.
        blocks: how many blocks there are.
        checksums: of the first blocks, from a snapshot; all others are zero. None for a store of zeros.
    """

    def __init__(self, block_bytes: int, blocks: int, checksums: Checksums | None = None) -> None:
        self.block_bytes = block_bytes
        self.zero = zero_checksum(block_bytes)
        self._values = np.full(blocks, self.zero, np.uint32)
        if checksums is not None:
            self._values[: len(checksums)] = checksums
        self._flags = np.zeros(blocks, np.uint8)

    def mark(self, blocks: npt.NDArray[np.int64]) -> None:
        """These blocks were written. One call of numpy: each costs the writer thread a turn at the interpreter."""
        np.put(self._flags, blocks, _STALE | _CHANGED)

    def used_chunks(self) -> Iterator[tuple[int, int]]:
        """Runs of blocks that may not be zero, as (first, last + 1), short enough to be read at once."""
        yield from chunks_of(np.flatnonzero((self._values != self.zero) | self._is_stale()))

    def stale_chunks(self) -> Iterator[tuple[int, int]]:
        """Runs of blocks whose checksum is out of date."""
        yield from chunks_of(np.flatnonzero(self._is_stale()))

    def update(self, first: int, data: Buffer) -> None:
        """Bring the checksums of the blocks in `data`, which begins with block `first`, up to date."""
        view = memoryview(data).cast("B")
        for position in range(len(view) // self.block_bytes):
            if self._flags[first + position] & _STALE:
                block = view[position * self.block_bytes : (position + 1) * self.block_bytes]
                self._values[first + position] = zlib.crc32(block)
                self._flags[first + position] &= ~_STALE

    def values(self) -> Checksums:
        """All checksums; none may be out of date."""
        assert not self._is_stale().any()
        return self._values

    def changed(self) -> npt.NDArray[np.int64]:
        """Blocks that were written since the last commit."""
        return np.flatnonzero(self._flags & _CHANGED)

    def forget_changes(self) -> None:
        """A commit has happened."""
        self._flags &= ~_CHANGED

    def _is_stale(self) -> npt.NDArray[np.bool_]:
        return (self._flags & _STALE).view(np.bool_)  # the bit has the value 1


def zero_checksum(block_bytes: int) -> int:
    """CRC-32 of a block that was never written."""
    return zlib.crc32(bytes(block_bytes))


def chunks_of(blocks: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Sorted block numbers as runs (first, last + 1) of at most `_CHUNK_BLOCKS`."""
    breaks = np.flatnonzero(np.diff(blocks) != 1) + 1
    for run in np.split(blocks, breaks):
        for start in range(0, len(run), _CHUNK_BLOCKS):
            part = run[start : start + _CHUNK_BLOCKS]
            yield int(part[0]), int(part[-1]) + 1
