"""Many strings in one array: worker processes share it, where a list is copied as they count its references."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class PackedTexts(Sequence[str]):
    """Strings by place; what is not UTF-8 comes back as surrogates, as it was given."""

    def __init__(self, texts: Iterable[Any]) -> None:
        data, ends = bytearray(), array("q")  # one at a time: a list of a million strings takes more than they do
        for text in texts:
            data += str(text).encode("utf-8", "surrogateescape")
            ends.append(len(data))
        self._bytes = np.frombuffer(bytes(data), dtype=np.uint8)
        self._ends = np.frombuffer(ends, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: Any) -> Any:
        start = int(self._ends[place - 1]) if place else 0
        return self._bytes[start : int(self._ends[place])].tobytes().decode("utf-8", "surrogateescape")
