"""Labels of one set in the numbering of another, and what an evaluation needs of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isogclr.errors import DataError
from isogclr.pictures.picture_set import NO_LABEL, Labels, Pictures

_SHOWN = 5  # names that an error lists


def needed_labels(pictures: Pictures, purpose: str) -> Labels:
    """The labels by row, if every picture has one and there are two classes or more.

    Args:
        purpose: who needs them, for the message.
    """
    labels = pictures.labels
    where = pictures.shards[0]
    if labels is None:
        raise DataError(
            f"{purpose} needs the class of every picture, and {where} has none: use a folder for each class, or "
            "shards with a `.cls` file (a number) in every sample; a field of their `.json` files: --label FIELD"
        )
    rows = pictures.positions()
    missing = rows[labels[rows] == NO_LABEL]
    if len(missing):
        shard, key = pictures.name(int(missing[0]))
        raise DataError(
            f"{purpose} needs the class of every picture, and {len(missing):,} of {len(rows):,} have none, the "
            f"first is {key} of {shard}: add their labels, or take them out"
        )
    if len(np.unique(labels[rows])) < 2:
        raise DataError(
            f"{purpose} needs two classes or more, and all {len(rows):,} pictures of {where} are of one class: "
            "name the folder that holds the folders of the classes, not one of them"
        )
    return labels


def labels_in(pictures: Pictures, classes: Sequence[str], purpose: str) -> Labels:
    """The labels of a set by row, in the numbering of `classes`: a test set may lack one of the training set."""
    labels = needed_labels(pictures, purpose)
    assert pictures.classes is not None
    number = {name: place for place, name in enumerate(classes)}
    used = [pictures.classes[label] for label in np.unique(labels[pictures.positions()]).tolist()]
    strange = [name for name in used if name not in number]
    if strange:
        raise DataError(
            f"{purpose}: {pictures.shards[0]} has {len(strange):,} classes that the training data has not, like "
            f"{', '.join(strange[:_SHOWN])}; that one has {len(classes):,}, like {', '.join(classes[:_SHOWN])}: "
            "use a test set of the same classes, under the same names"
        )
    renumbered = np.array([*(number.get(name, NO_LABEL) for name in pictures.classes), NO_LABEL], dtype=np.int64)
    found: Labels = renumbered[labels]  # −1 is the last
    return found
