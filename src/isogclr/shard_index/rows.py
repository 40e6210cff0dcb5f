"""The rows of one shard: what a data worker holds while it reads that shard."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.errors import ShardIndexError

Rows = npt.NDArray[np.int64]


class ShardRows:
    """The rows of one shard, by key. Memory is in proportion to the shard."""

    def __init__(self, shard_id: str, rows: dict[str, int]) -> None:
        self.id = shard_id
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str | bytes) -> bool:
        return _text(key) in self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def row(self, key: str | bytes) -> int:
        try:
            return self._rows[_text(key)]
        except KeyError:
            raise self._unknown(_text(key)) from None

    def rows(self, keys: Collection[str] | Collection[bytes]) -> Rows:
        """The rows of many keys at once."""
        texts: Iterable[Any] = map(_text, keys) if isinstance(next(iter(keys), ""), bytes) else keys
        try:
            return np.fromiter(map(self._rows.__getitem__, texts), dtype=np.int64, count=len(keys))
        except KeyError as error:
            raise self._unknown(error.args[0]) from None

    def _unknown(self, key: str) -> ShardIndexError:
        shown = key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        return ShardIndexError(
            f"shard {self.id} has no key {shown!r} in the index, which holds {len(self):,} keys of it: the shard "
            "has changed since; bring the index up to date with `isogclr index build`; old rows stay"
        )


class PositionRows(ShardRows):
    """The rows of a table, by position. A position as text is accepted too, so that locations can be looked up."""

    def __init__(self, shard_id: str, segments: Sequence[tuple[int, int]]) -> None:
        super().__init__(shard_id, {})
        self._all = np.concatenate([np.arange(first, first + count) for first, count in segments] or [np.arange(0)])

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: str | bytes | int) -> bool:
        text = str(_text(key))
        return text.isascii() and text.isdecimal() and int(text) < len(self._all)

    def __iter__(self) -> Iterator[str]:
        return map(str, range(len(self._all)))

    def row(self, key: str | bytes | int) -> int:
        if key not in self:
            raise self._unknown(str(_text(key)))
        return int(self._all[int(_text(key))])

    def rows(
        self, keys: Collection[str] | Collection[bytes] | Collection[int] | npt.NDArray[np.integer[Any]]
    ) -> Rows:
        if not isinstance(keys, np.ndarray):
            unknown = [key for key in keys if key not in self]
            if unknown:
                raise self._unknown(str(_text(unknown[0])))
            keys = np.array([int(_text(key)) for key in keys], dtype=np.int64)
        positions = np.asarray(keys, dtype=np.int64)
        wrong = positions[(positions < 0) | (positions >= len(self._all))]
        if len(wrong):
            raise self._unknown(str(wrong[0]))
        rows: Rows = self._all[positions]
        return rows


def _text(key: Any) -> Any:
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else key
