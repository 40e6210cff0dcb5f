"""A state store in the memory of one process: for tests, small runs, and as the yardstick of the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from isogclr.durable import Buffer
from isogclr.state.blocks import Checksums
from isogclr.state.contract import RowsAt, RowStore, grown_header
from isogclr.state.layout import BLOCK_ROWS, Header
from isogclr.state.pending import Update
from isogclr.state.schema import Schema, Values
from isogclr.state.snapshot import Snapshot


class MemoryStore(RowStore):
    """The contract of `RowStore` on an array; writes are applied at once. Use `create` or `restore`."""

    def __init__(self, header: Header, checksums: Checksums | None = None) -> None:
        super().__init__(header, checksums)
        self._data = header.schema.zeros(header.blocks * BLOCK_ROWS)

    @classmethod
    def create(cls, schema: Schema, rows: int, index_fingerprint: str) -> MemoryStore:
        """A store of samples that were never visited."""
        return cls(Header(schema, rows, index_fingerprint))

    @classmethod
    def restore(
        cls,
        snapshot: Path,
        schema: Schema,
        rows: int,
        index_fingerprint: str,
        rows_at: RowsAt | None = None,
    ) -> MemoryStore:
        """The store of a snapshot, as `StateStore.restore`."""
        with Snapshot(snapshot) as source:
            header = grown_header(source.header, snapshot, schema, rows, index_fingerprint, rows_at)
            store = cls(header, source.checksums)
            for first, data in source.chunks():
                values = np.frombuffer(data, schema.dtype)
                store._data[first * BLOCK_ROWS : first * BLOCK_ROWS + len(values)] = values
        return store

    def read(self, rows: npt.ArrayLike) -> Values:
        return np.take(self._data, self._checked_rows(rows))

    def prefetch(self, rows: npt.ArrayLike) -> None:
        self._checked_rows(rows)

    def write(self, rows: npt.ArrayLike, values: Values, step: int) -> None:
        checked = self._checked_rows(rows)
        update = Update(self._checked_step(step), checked, self._checked_values(values, len(checked)))
        np.put(self._data, update.rows, update.values)
        self._checksums.mark(update.blocks)
        self._newest = update.step

    def drain(self) -> None:
        """Nothing ever waits here."""
        self._check_open()

    def close(self) -> None:
        self._is_closed = True
        self._data = self.schema.zeros(0)

    def _bytes(self, offset: int, length: int) -> Buffer:
        return self._data.view(np.uint8)[offset : offset + length].data
