"""The state of all visited samples as a table, for people and for plots."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from isogclr.durable import fsync_directory, fsync_file, replace_file, temporary_name
from isogclr.errors import ConfigError, InputError, IsogclrError, StoreError
from isogclr.spreadsheet import cell
from isogclr.state.faults import storage_errors
from isogclr.state.schema import COUNTERS, Rows, Schema
from isogclr.state.snapshot import Snapshot

Columns = dict[str, Any]  # name -> array or list, all of one length


class SampleNames(Protocol):
    """What is asked of a shard index."""

    def rows_at(self, fingerprint: str) -> int:
        """How many rows the index had when it had this fingerprint; raises if it never did."""

    def locate(self, rows: Rows) -> Sequence[tuple[str, str]]:
        """Shard and key of each row."""


def export_state(source: Path, target: Path, index: SampleNames | None = None) -> int:
    """Write the visited rows of a snapshot to a CSV or parquet file, by its suffix; returns how many.

    Memory is bounded by the rows that a snapshot yields at a time, whatever the size of the store. The file appears
    when it is complete.

    Args:
        source: a snapshot.
        target: ends in .csv or .parquet.
        index: gives shard and key of each row; without it there are row numbers only.
    """
    writers = {".csv": _write_csv, ".parquet": _write_parquet}
    if target.suffix not in writers:
        expected = " or ".join(writers)
        raise ConfigError(
            [f"{target}: found the suffix {target.suffix!r}, expected a file that ends in {expected}"]
        )
    with Snapshot(source) as snapshot:
        if index is not None:
            _check_index(snapshot, index)
        with storage_errors(target, "write the table"):
            return writers[target.suffix](target, snapshot, index)


def _check_index(snapshot: Snapshot, index: SampleNames) -> None:
    header = snapshot.header
    try:
        rows = index.rows_at(header.index_fingerprint)
    except IsogclrError as error:
        raise _other_index(snapshot, str(error)) from error
    if rows != header.rows:
        raise _other_index(snapshot, f"the index had {rows:,} rows at that fingerprint")


def _other_index(snapshot: Snapshot, reason: str) -> StoreError:
    header = snapshot.header
    return StoreError(
        f"{snapshot.path}: found a store of index {header.index_fingerprint} with {header.rows:,} rows, expected "
        f"one of the index given: {reason}; use the index of the run, or leave it out to get row numbers only"
    )


def _tables(snapshot: Snapshot, index: SampleNames | None) -> Iterator[Columns]:
    """The visited rows, some at a time. `last_epoch` is the number of the epoch, no longer plus one."""
    for first_row, values in snapshot.visited():
        visited = np.flatnonzero(values["visits"])
        if not len(visited):
            continue
        rows = first_row + visited
        table: Columns = {"row": rows}
        if index is not None:
            places = index.locate(rows)
            table["shard"] = [_printable(shard) for shard, _ in places]
            table["key"] = [_printable(key) for _, key in places]
        for name in snapshot.header.schema.state_columns:
            table[name] = values[name][visited]
        table["visits"] = values["visits"][visited]
        table["last_epoch"] = values["last_epoch"][visited].astype(np.int64) - 1
        yield table


def _names(schema: Schema, index: SampleNames | None) -> list[str]:
    return ["row", *(["shard", "key"] if index is not None else []), *schema.state_columns, *COUNTERS]


def _write_csv(target: Path, snapshot: Snapshot, index: SampleNames | None) -> int:
    count = 0

    def chunks() -> Iterator[bytes]:
        nonlocal count
        yield _csv_lines([_names(snapshot.header.schema, index)])
        for table in _tables(snapshot, index):
            count += len(table["row"])
            # numpy's text of a float32 is the shortest that reads back as the same number
            columns = [
                c.astype(np.str_).tolist() if isinstance(c, np.ndarray) else list(map(cell, c))
                for c in table.values()
            ]
            yield _csv_lines(zip(*columns, strict=True))

    replace_file(target, chunks())
    return count


def _csv_lines(lines: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().encode("utf-8")


def _write_parquet(target: Path, snapshot: Snapshot, index: SampleNames | None) -> int:
    try:
        import pyarrow as arrow  # noqa: PLC0415 (optional)
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise InputError(
            f"{target}: found no pyarrow, expected it for parquet; `pip install pyarrow`, or export to .csv"
        ) from error
    floats = dict.fromkeys(snapshot.header.schema.state_columns, arrow.float32())
    others = {"shard": arrow.string(), "key": arrow.string(), "visits": arrow.uint32()}
    types = {name: {**floats, **others}.get(name, arrow.int64()) for name in _names(snapshot.header.schema, index)}
    schema = arrow.schema(list(types.items()))
    partial = temporary_name(target)
    count = 0
    try:
        with parquet.ParquetWriter(partial, schema) as writer:
            for table in _tables(snapshot, index):
                count += len(table["row"])
                writer.write_table(arrow.table(table, schema=schema))
        fsync_file(partial)
        os.rename(partial, target)  # noqa: PTH104
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fsync_directory(target.parent)
    return count


def _printable(text: str) -> str:
    """Keys are bytes that need not be text: those that are not UTF-8 come as surrogates, and go as escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
