"""Classes of pictures, by row: what the report knows of the semantics of a data set without captions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

UNLABELLED = -1


@dataclass(frozen=True)
class Labels:
    """The class of each row of an index.

    Args:
        by_row: number of the class, or UNLABELLED.
        names: of the classes, by number.
    """

    by_row: npt.NDArray[np.int32]
    names: tuple[str, ...]

    def of(self, rows: Any) -> npt.NDArray[np.int32]:
        """Of some rows; rows that came after the labels were read have none."""
        rows = np.asarray(rows, np.int64)
        found = np.full(len(rows), UNLABELLED, np.int32)
        known = rows < len(self.by_row)
        found[known] = self.by_row[rows[known]]
        return found

    def name(self, row: int) -> str | None:
        number = int(self.of([row])[0])
        return None if number == UNLABELLED else self.names[number]


def make_labels(labels: npt.NDArray[np.int64] | None, classes: tuple[str, ...] | None) -> Labels | None:
    """From what `isogclr.pictures` gives; None if no row has a label.

    Numbers without names are names themselves; those that no row has do not count then, so that they may be any.
    """
    if labels is None or not len(labels) or labels.max() < 0:
        return None
    if classes is not None and labels.max() < len(classes):
        return Labels(labels.clip(UNLABELLED).astype(np.int32), tuple(classes))
    used = np.unique(labels[labels >= 0])
    by_row = np.where(labels >= 0, np.searchsorted(used, labels), UNLABELLED).astype(np.int32)
    return Labels(by_row, tuple(str(number) for number in used.tolist()))
