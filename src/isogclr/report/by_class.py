"""Temperatures of all samples by class: counts and sums, so that memory depends on classes and not on samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from isogclr.report.row_classes import UNLABELLED, Labels
from isogclr.state.schema import Values

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
EXTREME_SHARE = 600 / 10_847  # the paper's figure 5 looks at the 600 hottest and coldest of CIFAR-100-LT
_TILE_CLASSES = 512


class ClassColumn:
    """A column of the store, class by class, in the bins of the scan that lie between its bounds.

    Args:
        classes: how many there are.
        edges: of the scan's bins.
        bounds: of the values, if known: what lies outside goes into the outermost bin.
    """

    def __init__(self, classes: int, edges: Floats, bounds: tuple[float | None, float | None]) -> None:
        low, high = bounds
        first = 0 if low is None else max(0, int(np.searchsorted(edges, low, side="right")) - 1)
        last = len(edges) - 1 if high is None else max(first + 1, int(np.searchsorted(edges, high)))
        self.edges = edges[first : min(last, len(edges) - 1) + 1]
        self.counts = np.zeros((classes, len(self.edges) - 1), np.uint32)
        self._total, self._squares = np.zeros(classes), np.zeros(classes)

    def add(self, classes: npt.NDArray[np.int32], values: npt.NDArray[np.float32]) -> None:
        finite = np.isfinite(values)
        classes, exact = classes[finite], values[finite].astype(np.float64)
        places = np.searchsorted(self.edges, exact, side="right") - 1
        np.add.at(self.counts, (classes, places.clip(0, self.counts.shape[1] - 1)), 1)
        self._total += np.bincount(classes, exact, len(self._total))
        self._squares += np.bincount(classes, exact**2, len(self._squares))

    @property
    def numbers(self) -> Counts:
        """Finite values of each class. [C]"""
        found: Counts = self.counts.sum(axis=1, dtype=np.int64)
        return found

    @property
    def means(self) -> Floats:
        """[C], NaN of a class without values, here and below."""
        return _ratio(self._total, self.numbers)

    @property
    def deviations(self) -> Floats:
        found: Floats = np.sqrt(np.maximum(0.0, _ratio(self._squares, self.numbers) - self.means**2))
        return found

    def quantiles(self, share: float) -> Floats:
        """Of each class, to the width of a bin. [C]"""
        middles = np.sqrt(self.edges[:-1] * self.edges[1:])
        found = np.full(len(self.counts), np.nan)
        for start in range(0, len(found), _TILE_CLASSES):  # sums over all classes at once could be large
            sums = np.cumsum(self.counts[start : start + _TILE_CLASSES], axis=1, dtype=np.int64)
            numbers = sums[:, -1]
            places = (sums >= (share * numbers)[:, None].clip(1)).argmax(axis=1)
            found[start : start + _TILE_CLASSES] = np.where(numbers > 0, middles[places], np.nan)
        return found

    def together(self, members: Sequence[int]) -> ClassColumn:
        """The same of some classes taken for one."""
        found = ClassColumn(1, self.edges, (None, None))
        chosen = np.asarray(members, np.int64)
        found.counts[0] = self.counts[chosen].sum(axis=0)
        found._total[0], found._squares[0] = self._total[chosen].sum(), self._squares[chosen].sum()
        return found

    def extremes(self, share: float = EXTREME_SHARE) -> tuple[Counts, Counts] | None:
        """How many samples of each class are among the hottest, and among the coldest, `share` of all. [C] each

        Bins are not divided, so that samples at a bound, all alike, belong together; a group can be larger than
        asked for. None if temperatures are too much alike to have two groups.
        """
        all_classes = self.counts.sum(axis=0, dtype=np.int64)
        wanted = share * all_classes.sum()
        from_below = np.cumsum(all_classes)
        last_cold = int(np.searchsorted(from_below, wanted))
        from_above = np.cumsum(all_classes[::-1])
        first_hot = len(all_classes) - 1 - int(np.searchsorted(from_above, wanted))
        if not wanted or last_cold >= first_hot:
            return None
        return (
            self.counts[:, first_hot:].sum(axis=1, dtype=np.int64),
            self.counts[:, : last_cold + 1].sum(axis=1, dtype=np.int64),
        )


@dataclass
class ByClass:
    """All visited samples of a run by class.

    Args:
        names: of the classes.
        sizes: visited samples of each. [C]
        unlabelled: visited samples without a class.
        columns: by their name in the store.
    """

    names: tuple[str, ...]
    sizes: Counts
    columns: Mapping[str, ClassColumn]
    unlabelled: int = 0

    @classmethod
    def empty(
        cls, labels: Labels, columns: Sequence[str], edges: Floats, bounds: tuple[float | None, float | None]
    ) -> ByClass:
        number = len(labels.names)
        made = {name: ClassColumn(number, edges, bounds) for name in columns}
        return cls(labels.names, np.zeros(number, np.int64), made)

    def add(self, classes: npt.NDArray[np.int32], values: Values) -> None:
        known = classes != UNLABELLED
        self.unlabelled += int(len(classes) - known.sum())
        classes, values = classes[known], values[known]
        self.sizes += np.bincount(classes, minlength=len(self.sizes))
        for name, column in self.columns.items():
            column.add(classes, values[name])

    @property
    def present(self) -> Counts:
        """Classes with samples, the largest first; equal sizes in the order of their numbers."""
        order = np.argsort(-self.sizes, kind="stable")
        return order[self.sizes[order] > 0]

    @property
    def is_balanced(self) -> bool:
        """Whether the largest class is hardly larger than the smallest."""
        sizes = self.sizes[self.sizes > 0]
        return not len(sizes) or bool(sizes.max() <= 1.5 * sizes.min())


def _ratio(numerator: Floats, number: Counts) -> Floats:
    found = np.full(len(numerator), np.nan)
    np.divide(numerator, number, out=found, where=number > 0)
    return found
