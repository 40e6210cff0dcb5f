"""How the temperatures of all samples are distributed, from the store, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from isogclr.state import RowStore
from isogclr.state.schema import Values

BINS = 100
CHUNK_ROWS = 1 << 18
MAX_ROWS = 1 << 25  # of a larger store, every k-th row is counted


def chunks(store: RowStore, stride: int = 1) -> Iterator[Values]:
    """All rows of the store, or every k-th, some at a time."""
    for first in range(0, store.rows, CHUNK_ROWS * stride):
        rows = np.arange(first, min(first + CHUNK_ROWS * stride, store.rows), stride, dtype=np.int64)
        yield store.read(rows)


def temperature_histograms(store: RowStore, minimum: float, maximum: float) -> list[dict[str, Any]]:
    """One record for each temperature column: counts of visited samples between log-spaced edges."""
    columns = [name for name in store.schema.state_columns if name.endswith("_temperature")]
    if not columns:
        return []
    edges = np.geomspace(minimum, maximum, BINS + 1)
    stride = -(-store.rows // MAX_ROWS)
    counts = {name: np.zeros(BINS, np.int64) for name in columns}
    for values in chunks(store, stride):
        visited = values[values["visits"] > 0]
        for name in columns:
            # float32 rounds the bounds; what lies on one belongs into the last bin beside it. Clipped in float64:
            # numpy would round the bounds to float32 too, below the first edge.
            counts[name] += np.histogram(np.clip(visited[name].astype(np.float64), minimum, maximum), edges)[0]
    return [
        {
            "column": name.replace("_", ".", 1),
            "edges": edges.tolist(),
            "counts": counts[name].tolist(),
            "stride": stride,
        }
        for name in columns
    ]


def seen_in_epoch(store: RowStore, epoch: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows this epoch has visited."""
    return np.concatenate([values["last_epoch"] == epoch + 1 for values in chunks(store)] or [np.zeros(0, bool)])
