"""Checksums of blocks: which are out of date, which were written, and in what pieces they are read."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isogclr.state.blocks import BlockChecksums, chunks_of, zero_checksum

BYTES = 16


def block(number: int) -> bytes:
    return bytes([number]) * BYTES


class TestChunks:
    @given(st.sets(st.integers(0, 400)))
    def test_they_hold_the_blocks_and_no_others(self, numbers: set[int]) -> None:
        chunks = list(chunks_of(np.array(sorted(numbers), dtype=np.int64)))
        assert [number for first, end in chunks for number in range(first, end)] == sorted(numbers)
        assert all(end - first <= 64 for first, end in chunks)

    def test_neighbours_are_read_at_once(self) -> None:
        assert list(chunks_of(np.array([0, 1, 2, 5, 6]))) == [(0, 3), (5, 7)]
        assert list(chunks_of(np.arange(100))) == [(0, 64), (64, 100)]


class TestChecksums:
    def test_a_new_store_is_zero(self) -> None:
        checksums = BlockChecksums(BYTES, 3)
        assert checksums.values().tolist() == [zlib.crc32(bytes(BYTES))] * 3 == [zero_checksum(BYTES)] * 3
        assert list(checksums.used_chunks()) == []

    def test_those_of_a_snapshot_are_kept_and_the_rest_is_zero(self) -> None:
        checksums = BlockChecksums(BYTES, 3, np.array([7, 8], np.uint32))
        assert checksums.values().tolist() == [7, 8, zero_checksum(BYTES)]
        assert list(checksums.used_chunks()) == [(0, 2)]

    def test_written_blocks_are_out_of_date_until_they_are_read(self) -> None:
        checksums = BlockChecksums(BYTES, 5)
        checksums.mark(np.array([1, 3]))
        assert list(checksums.stale_chunks()) == list(checksums.used_chunks()) == [(1, 2), (3, 4)]
        with pytest.raises(AssertionError):
            checksums.values()
        checksums.update(1, block(1) + block(2) + block(3))
        assert list(checksums.stale_chunks()) == []
        found = checksums.values().tolist()
        assert (found[1], found[3]) == (zlib.crc32(block(1)), zlib.crc32(block(3)))
        assert found[2] == checksums.zero  # not written, so not computed again: what was read there does not count

    def test_what_was_written_since_the_last_commit(self) -> None:
        checksums = BlockChecksums(BYTES, 5)
        checksums.mark(np.array([4, 1]))
        checksums.update(1, block(1))
        assert checksums.changed().tolist() == [1, 4]  # whether its checksum was computed or not
        checksums.forget_changes()
        assert checksums.changed().tolist() == []
        assert list(checksums.stale_chunks()) == [(4, 5)]
