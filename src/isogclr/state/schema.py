"""The columns of a row of state, by name.

A row is a packed little-endian record: the float32 columns that the loss keeps for each sample, then two counters
that every loss has. An all-zero row is a sample that was never visited, so a hole in a sparse file is a valid
store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.errors import InputError

Rows = npt.NDArray[np.int64]
Values = npt.NDArray[np.void]

COUNTERS = ("visits", "last_epoch")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Schema:
    """Which columns a row has.

    Args:
        state_columns: names of the float32 columns, in their order on disk. `visits` (uint32) and `last_epoch`
            (uint32, stored as epoch + 1 so that zero means never) follow them in every schema.
    """

    state_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (*self.state_columns, *COUNTERS)
        bad = [name for name in names if not _NAME.fullmatch(name)]
        if bad or len(set(names)) != len(names):
            raise InputError(
                f"state_columns: found {list(self.state_columns)}; expected distinct names of lower-case letters, "
                f"digits and underscores, without {list(COUNTERS)}, which every schema has; rename the columns"
            )

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """The numpy record of a row; packed, so that it is also the layout on disk."""
        floats = [(name, "<f4") for name in self.state_columns]
        return np.dtype([*floats, *((name, "<u4") for name in COUNTERS)])

    @property
    def row_bytes(self) -> int:
        return int(self.dtype.itemsize)

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.state_columns, *COUNTERS)

    def describe(self) -> list[list[str]]:
        """The columns as they stand in a file header: pairs of name and numpy type code."""
        floats = [[name, "<f4"] for name in self.state_columns]
        return floats + [[name, "<u4"] for name in COUNTERS]

    @classmethod
    def from_description(cls, columns: Any) -> Schema:
        """The schema of a file header; ValueError if this release has no such schema."""
        try:
            schema = cls(tuple(str(name) for name, _ in columns[: -len(COUNTERS)]))
        except (TypeError, InputError) as error:
            raise ValueError(f"columns {columns!r}") from error
        if schema.describe() != columns:
            raise ValueError(f"columns {columns!r}")
        return schema

    def zeros(self, count: int) -> Values:
        """Rows of samples that were never visited."""
        return np.zeros(count, self.dtype)


def schema_for(state_columns: Sequence[str]) -> Schema:
    """The schema of a loss that keeps these float columns for each sample (none: the counters alone)."""
    return Schema(tuple(state_columns))
