"""Stores for tests: both implementations behind one small factory, and rows that are easy to check."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isogclr.state.contract import RowStore
from isogclr.state.memory import MemoryStore
from isogclr.state.schema import Schema, schema_for
from isogclr.state.store import StateStore

FINGERPRINT = "index-a"


def _both(*columns: str) -> Schema:
    return schema_for([f"{side}_{column}" for side in ("image", "text") for column in columns])


# The rows of the losses, in all their sizes; tests/contract/test_loss_columns.py compares them with the losses.
ISOGCLR = _both("temperature", "log_mean", "momentum")
ISOGCLR_ADAM = _both("temperature", "log_mean", "momentum", "second_moment")
GLOBAL_TEMPERATURE = _both("log_mean")
STATELESS = schema_for([])


@dataclass(frozen=True)
class StoreFactory:
    """How to make one kind of store; `folder` is where a file may go."""

    create: Callable[..., RowStore]
    restore: Callable[..., RowStore]


def _file_create(folder, schema=ISOGCLR, rows=100, fingerprint=FINGERPRINT):
    return StateStore.create(folder / "live", schema, rows, fingerprint)


def _file_restore(folder, snapshot, schema=ISOGCLR, rows=100, fingerprint=FINGERPRINT, rows_at=None):
    return StateStore.restore(folder / "live", snapshot, schema, rows, fingerprint, rows_at)


def _memory_create(folder, schema=ISOGCLR, rows=100, fingerprint=FINGERPRINT):
    return MemoryStore.create(schema, rows, fingerprint)


def _memory_restore(folder, snapshot, schema=ISOGCLR, rows=100, fingerprint=FINGERPRINT, rows_at=None):
    return MemoryStore.restore(snapshot, schema, rows, fingerprint, rows_at)


def _lagging(make):
    """The writer thread sleeps before every update, so that reads depend on the overlay."""

    def make_slow(*arguments, **options):
        store = make(*arguments, **options)
        check_space = store._check_space

        def sleep_first(rows):
            time.sleep(0.004)
            check_space(rows)

        store._check_space = sleep_first
        return store

    return make_slow


FILE = StoreFactory(_file_create, _file_restore)
LAGGING_FILE = StoreFactory(_lagging(_file_create), _lagging(_file_restore))
MEMORY = StoreFactory(_memory_create, _memory_restore)


def values_of(schema: Schema, numbers) -> np.ndarray:
    """Rows in which every column is the given number: a mix of two steps in one row can not hide."""
    numbers = np.asarray(numbers)
    values = schema.zeros(len(numbers))
    for name in schema.names:
        values[name] = numbers
    return values


def numbers_in(values: np.ndarray) -> np.ndarray:
    """The inverse of `values_of`; fails if the columns of a row do not agree."""
    numbers = values["visits"].astype(np.int64)
    for name in values.dtype.names:
        np.testing.assert_array_equal(values[name], numbers)
    return numbers


def small_snapshot(path: Path, rows: int = 3, schema: Schema = ISOGCLR) -> Path:
    """A snapshot of step 7 in which row r holds r + 1."""
    with MemoryStore.create(schema, rows, FINGERPRINT) as store:
        store.write(np.arange(rows), values_of(schema, np.arange(rows) + 1), 7)
        store.commit(path)
    return path
