"""Two numbers in a page of a mapped file, as the writer stores them and as another mapping loads them."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from isogclr.state.layout import PAGE_BYTES
from isogclr.state.published import NONE, Published


def test_what_one_mapping_says_another_reads(tmp_path: Path) -> None:
    path = tmp_path / "live"
    path.write_bytes(bytes(2 * PAGE_BYTES))
    with path.open("r+b") as file:
        writer = Published(mmap.mmap(file.fileno(), 0))
        reader = Published(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        assert (reader.begun(), reader.applied()) == (NONE, NONE)
        writer.begin(0)
        assert (reader.begun(), reader.applied()) == (0, NONE)
        writer.finish(0)
        writer.begin(7)
        assert (reader.begun(), reader.applied()) == (7, 0)
        writer.finish(7)
        assert (reader.begun(), reader.applied()) == (7, 7)
    words = np.frombuffer(path.read_bytes(), "<u8")
    assert {int(place): int(words[place]) for place in np.flatnonzero(words)} == {
        PAGE_BYTES // 8: 8,
        PAGE_BYTES // 8 + 1: 8,
    }
