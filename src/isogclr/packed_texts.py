"""Many strings in one array: worker processes share it, where a list is copied as they count its references."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np


class PackedTexts(Sequence[str]):
    """Strings by place; what is not UTF-8 comes back as surrogates, as it was given."""

    def __init__(self, texts: Iterable[Any]) -> None:
        encoded = [str(text).encode("utf-8", "surrogateescape") for text in texts]
        self._ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: Any) -> Any:
        start = int(self._ends[place - 1]) if place else 0
        return self._bytes[start : int(self._ends[place])].tobytes().decode("utf-8", "surrogateescape")
