"""What every state store promises, whether it lives in a file or in memory."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from isogclr.durable import Buffer
from isogclr.errors import InputError, IsogclrError, StoreError
from isogclr.state.blocks import BlockChecksums, Checksums
from isogclr.state.layout import Header
from isogclr.state.published import NONE
from isogclr.state.schema import Rows, Schema, Values
from isogclr.state.snapshot import SnapshotInfo, write_snapshot

RowsAt = Callable[[str], int]  # `ShardIndex.rows_at`
Store = TypeVar("Store", bound="RowStore")
_LOG = logging.getLogger(__name__)
_MAX_STEP = 1 << 62
# In one step: a row (layout.MAX_ROWS) and a position share one word when they are sorted.
_MAX_UPDATES = (1 << 27) - 1


class RowStore(ABC):
    """One row of state per sample. Values go in and out by value; one thread calls, in the order of the steps.

    The row count is fixed. For an index that has grown, a store is restored from a snapshot: old rows keep their
    state, new ones are zero (`grown_header` says which snapshots are accepted).

    Args:
        header: schema, row count, index fingerprint, and the last step that the rows contain.
        checksums: of the blocks of the snapshot that the rows come from; None if they are all zero.

    Attributes:
        wait_seconds: how long calls have waited for the disk so far; 0.0 for a store that has none.
    """

    def __init__(self, header: Header, checksums: Checksums | None) -> None:
        self._header = header
        self._checksums = BlockChecksums(header.block_bytes, header.blocks, checksums)
        self._is_closed = False
        self._newest = NONE if header.step is None else header.step
        self.wait_seconds = 0.0

    @property
    def schema(self) -> Schema:
        return self._header.schema

    @property
    def rows(self) -> int:
        return self._header.rows

    @property
    def index_fingerprint(self) -> str:
        return self._header.index_fingerprint

    @property
    def newest_step(self) -> int | None:
        """The last step that was written; reads contain it. None before the first."""
        return None if self._newest == NONE else self._newest

    @abstractmethod
    def read(self, rows: npt.ArrayLike) -> Values:
        """The state of these rows, as a copy, with every step that was written. Repeated rows are allowed."""

    @abstractmethod
    def prefetch(self, rows: npt.ArrayLike) -> None:
        """A hint that these rows will be read soon. Touches pages, never values; returns at once."""

    @abstractmethod
    def write(self, rows: npt.ArrayLike, values: Values, step: int) -> None:
        """Give rows a new state. Of a row that occurs more than once, the first occurrence counts.

        Steps must increase, and need not be consecutive: a step that the optimizer skipped is not written.
        """

    @abstractmethod
    def drain(self) -> None:
        """Return when every step that was written is in the rows themselves."""

    @abstractmethod
    def _bytes(self, offset: int, length: int) -> Buffer:
        """Bytes of the rows themselves; everything must be drained."""

    def _clone_source(self) -> int | None:
        """Descriptor of a file that has the rows where a snapshot has them."""
        return None

    def commit(self, path: Path) -> SnapshotInfo:
        """Drain, then write a durable snapshot to a path that does not exist yet."""
        self._check_open()
        self.drain()
        header = replace(self._header, step=self.newest_step)
        info = write_snapshot(path, header, self._bytes, self._checksums, self._clone_source())
        _LOG.debug("%s: step %s, %s", path, header.step, info)
        self.forget_changes()
        return info

    def changed_blocks(self) -> tuple[npt.NDArray[np.int64], Checksums]:
        """Drain; the blocks written since the last commit, with their checksums: equal on all nodes."""
        self._check_open()
        self.drain()
        size = self._header.block_bytes
        for first, last in self._checksums.stale_chunks():
            self._checksums.update(first, self._bytes(first * size, (last - first) * size))
        blocks = self._checksums.changed()
        return blocks, self._checksums.values()[blocks]

    def forget_changes(self) -> None:
        """Count `changed_blocks` from here on; `commit` does it, a node that writes no snapshot must."""
        self._checksums.forget_changes()

    @abstractmethod
    def close(self) -> None:
        """Give everything back. What was not committed is gone."""

    def __enter__(self: Store) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError("found a closed store, expected an open one; restore it from a generation")

    def _checked_rows(self, rows: npt.ArrayLike) -> Rows:
        self._check_open()
        array = np.asarray(rows)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
            raise InputError(
                f"rows: found an array of shape {array.shape} and type {array.dtype}; expected one dimension of "
                "integers; pass the rows of the batch"
            )
        checked = np.ascontiguousarray(array, np.int64)
        if len(checked) and checked.view(np.uint64).max() >= self.rows:  # a negative number is a huge one
            raise InputError(
                f"rows: found {int(checked.min())} to {int(checked.max())}; expected 0 to {self.rows - 1}: "
                "the rows come from another index; build the index again or use its own store"
            )
        return checked

    def _checked_values(self, values: Values, count: int) -> Values:
        if values.dtype != self.schema.dtype or values.shape != (count,):
            raise InputError(
                f"values: found shape {values.shape} and type {values.dtype}; expected shape ({count},) and type "
                f"{self.schema.dtype}; fill an array of `store.schema.zeros(count)`"
            )
        if count > _MAX_UPDATES:
            raise InputError(
                f"rows: found {count:,} of them, expected at most {_MAX_UPDATES:,} in one step; split it"
            )
        return np.ascontiguousarray(values)

    def _checked_step(self, step: int) -> int:
        if not isinstance(step, int | np.integer) or isinstance(step, bool) or not 0 <= step < _MAX_STEP:
            raise InputError(f"step: found {step!r}; expected a whole number from 0 to {_MAX_STEP - 1}")
        if step <= self._newest:
            raise InputError(
                f"step: found {step} after step {self._newest}; expected steps that increase; write a step once, "
                "with the rows of all ranks"
            )
        return int(step)


def grown_header(
    found: Header, path: Path, schema: Schema, rows: int, index_fingerprint: str, rows_at: RowsAt | None
) -> Header:
    """The header of a store that is restored from a snapshot for an index that is the same, or has grown."""
    if found.schema != schema:
        raise StoreError(
            f"{path}: found the columns {list(found.schema.names)}, expected {list(schema.names)}: it was written "
            "with another loss or other options; resume with those, or start a new run"
        )
    if _rows_then(found, rows, index_fingerprint, rows_at) != found.rows or found.rows > rows:
        raise StoreError(
            f"{path}: found a store of index {found.index_fingerprint} with {found.rows:,} rows, expected index "
            f"{index_fingerprint} with {rows:,} rows, or one that it has grown from: its rows are other samples; "
            "use the index that the run was started with, or let `isogclr index build` extend that one"
        )
    return Header(schema, rows, index_fingerprint, found.step)


def _rows_then(found: Header, rows: int, index_fingerprint: str, rows_at: RowsAt | None) -> int | None:
    """How many rows the index had when the snapshot was taken; None if it is another index."""
    if found.index_fingerprint == index_fingerprint:
        return rows
    if rows_at is None:
        return None
    try:
        return rows_at(found.index_fingerprint)
    except IsogclrError:
        return None
