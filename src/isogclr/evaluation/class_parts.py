"""Head, middle and tail: the thirds of the classes by their size in training, for data with a long tail.

torch is not imported here: the report uses the same thirds, and does without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isogclr.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

PARTS = ("head", "middle", "tail")


def class_parts(sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Classes of each part, from the number of training pictures of every class.

    Ordered by size, equal sizes by their number; what three does not divide goes to the head first: 10 classes are
    4 + 3 + 3. Nothing for fewer than three classes, or if all have the same size: there is no tail then, and thirds
    by chance would look like one.
    """
    if len(sizes) < len(PARTS) or len(set(sizes)) == 1:
        return {}
    order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
    third, more = divmod(len(order), len(PARTS))
    found, start = {}, 0
    for place, name in enumerate(PARTS):
        end = start + third + (place < more)
        found[name] = tuple(sorted(order[start:end]))
        start = end
    return found


def class_recalls(predicted: Tensor, labels: Tensor, classes: int) -> list[float | None]:
    """Share of the test pictures of every class that are given it; None for a class without test pictures."""
    if len(predicted) != len(labels) or not len(labels):
        raise InputError(f"{len(predicted)} predictions and {len(labels)} labels: expected as many, and some")
    labels = labels.to(predicted.device)
    counts = labels.bincount(minlength=classes).tolist()
    hits = labels[predicted == labels].bincount(minlength=classes).tolist()
    return [hit / count if count else None for hit, count in zip(hits, counts, strict=True)]


def part_recalls(recalls: Sequence[float | None], sizes: Sequence[int]) -> dict[str, float]:
    """Mean of the recalls of each part's classes, those without test pictures left out."""
    found = {}
    for name, members in class_parts(sizes).items():
        known = [value for number in members if (value := recalls[number]) is not None]
        if known:
            found[f"{name}_recall"] = sum(known) / len(known)
    return found
