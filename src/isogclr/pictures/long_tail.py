"""A long-tailed subset of a labelled set, as the paper makes CIFAR-10-LT and CIFAR-100-LT.

Of C classes, class c keeps int(n_max · (1 / imbalance)^(c / (C − 1))) pictures, n_max being the size of the largest
class: class 0 keeps the most, the last one `imbalance` times fewer. Which pictures of a class stay is decided by a
seed, and written down.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.durable import replace_file
from isogclr.errors import ConfigError, DataError
from isogclr.pictures.class_labels import needed_labels
from isogclr.pictures.picture_set import Labels, Pictures, Rows

FILE_NAME = "long_tail.json"
_FORMAT = "isogclr long tail"


def check_imbalance(imbalance: float) -> None:
    if not math.isfinite(imbalance) or imbalance < 1:
        raise ConfigError(
            [
                f"--imbalance is {imbalance:g}, expected 1 or more: how many times more pictures the first class "
                "keeps than the last; the paper has 100"
            ]
        )


def long_tail_sizes(sizes: Sequence[int], imbalance: float) -> list[int]:
    """How many pictures of each class are kept, given how many there are; a class that has fewer keeps all."""
    check_imbalance(imbalance)
    largest, last = max(sizes), len(sizes) - 1
    if last < 1:
        raise DataError("--imbalance needs two classes or more, found one: leave it out")
    wanted = [int(largest * (1 / imbalance) ** (number / last)) for number in range(len(sizes))]
    return [min(pair) for pair in zip(sizes, wanted, strict=True)]


def keep_long_tail(labels: Labels, classes: Sequence[str], imbalance: float, seed: int) -> Rows:
    """The rows that are kept, in ascending order.

    The pictures of a class are put in the order of a hash of seed and row, and the first ones stay: no library's
    random numbers are involved, so another release of one makes the same choice.

    Args:
        labels: by row, −1 for what is no picture.
    """
    sizes = np.bincount(labels[labels >= 0], minlength=len(classes)).tolist()
    kept = long_tail_sizes(sizes, imbalance)
    empty = [classes[number] for number, size in enumerate(kept) if not size]
    if empty:
        raise DataError(
            f"--imbalance {imbalance:g} would leave no picture of {len(empty):,} classes, like {empty[-1]}: the "
            f"largest class has {max(sizes):,} pictures; use a smaller imbalance, or take out empty classes"
        )
    chosen = [
        sorted(np.flatnonzero(labels == number).tolist(), key=lambda row: _order(seed, row))[:size]
        for number, size in enumerate(kept)
    ]
    return np.sort(np.array([row for rows in chosen for row in rows], dtype=np.int64))


def _order(seed: int, row: int) -> bytes:
    return hashlib.blake2b(f"{seed} {row}".encode(), digest_size=16).digest()


@dataclass(frozen=True)
class LongTail:
    """What was kept, and of what.

    Attributes:
        data: digest of the whole set.
        sizes: pictures of each class in the whole set.
        kept: pictures of each class that were kept.
        rows: of these, ascending.
    """

    imbalance: float
    seed: int
    data: str
    classes: tuple[str, ...]
    sizes: tuple[int, ...]
    kept: tuple[int, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(cls, pictures: Pictures, imbalance: float, seed: int) -> LongTail:
        """Choose from a set."""
        check_imbalance(imbalance)
        labels = needed_labels(pictures, "--imbalance")
        classes = pictures.classes
        assert classes is not None
        rows = keep_long_tail(labels, classes, imbalance, seed)
        count = len(classes)
        sizes, kept = (np.bincount(one, minlength=count).tolist() for one in (labels[labels >= 0], labels[rows]))
        return cls(imbalance, seed, pictures.digest, classes, tuple(sizes), tuple(kept), tuple(rows.tolist()))

    @property
    def row_array(self) -> Rows:
        return np.array(self.rows, dtype=np.int64)

    @property
    def digest(self) -> str:
        """Of the set and of what was kept."""
        return hashlib.blake2b(f"{self.data} {self.rows}".encode(), digest_size=16).hexdigest()

    def mask(self, rows: int) -> npt.NDArray[np.bool_]:
        """For each row of the index whether it was kept."""
        found = np.zeros(rows, dtype=np.bool_)
        found[self.row_array] = True
        return found

    def save(self, path: Path) -> None:
        """As JSON, completely or not at all."""
        body = {"format": _FORMAT, "digest": self.digest, **asdict(self)}
        replace_file(path, [json.dumps(body, ensure_ascii=True).encode("ascii") + b"\n"])

    @classmethod
    def load(cls, path: Path) -> LongTail:
        """Read what `save` has written; damage is found by the digest."""
        try:
            body = json.loads(path.read_bytes())
            if body.pop("format") != _FORMAT:
                raise ValueError("another format")
            digest = body.pop("digest")
            fields: dict[str, Any] = {
                name: tuple(one) if isinstance(one, list) else one for name, one in body.items()
            }
            found = cls(**fields)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path} is no list of kept pictures ({error}): restore it, or start a new run"
            ) from None
        if found.digest != digest:
            raise DataError(f"{path} was changed: its digest is {found.digest}, it says {digest}; restore it")
        return found
