"""The rest of an epoch after a change of set-up: rows not yet seen, cut into equal ranges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]
_BITS = 8


class SeenRows:
    """Which rows an epoch has visited; one bit per row, because every data worker holds it."""

    def __init__(self, seen: Mask) -> None:
        self._bits = np.packbits(seen, bitorder="little")

    def unseen(self, rows: range) -> npt.NDArray[np.int64]:
        """Those of a range of rows that were not visited."""
        first = rows.start // _BITS
        bits = np.unpackbits(self._bits[first : -(-rows.stop // _BITS)], bitorder="little")
        own = bits[rows.start - first * _BITS : rows.stop - first * _BITS]
        return np.flatnonzero(own == 0) + rows.start

    def contains(self, rows: npt.NDArray[np.int64]) -> Mask:
        """For each of these rows whether it was visited."""
        found: Mask = (self._bits[rows // _BITS] >> (rows % _BITS).astype(np.uint8)) & 1 == 1
        return found


@dataclass(frozen=True)
class Rest:
    """What is left of an epoch: the first `total` of its unseen rows, in the order of the epoch.

    Attributes:
        counts: unseen rows of each shard, in the epoch's order of shards; a table is one shard.
    """

    epoch: int
    total: int
    seen: SeenRows
    counts: Counts

    def share(self, number: int, parts: int) -> range:
        """The places of one worker. They differ by one at most in number; who would have none repeats a place."""
        first, last = number * self.total // parts, (number + 1) * self.total // parts
        if first < last:
            return range(first, last)
        place = min(first, self.total - 1)
        return range(place, place + 1)

    def number_of_batches(self, batch_size: int, world_size: int, workers: int, accumulation: int) -> int:
        """Batches of each rank: enough for the largest share, in whole steps."""
        largest = -(-self.total // (world_size * workers))
        batches = -(-largest // batch_size) * workers
        return -(-batches // accumulation) * accumulation


def how_many(unseen: int, seen: int, num_samples: int, samples: int) -> int:
    """An epoch that is shorter than the data set ends after its own number of samples."""
    return unseen if num_samples >= samples else min(unseen, max(0, num_samples - seen))
