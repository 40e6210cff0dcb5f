"""Pictures in folders: a folder that holds pictures is a shard, a picture's key is the name of its file.

Folders may lie at any depth below the one that was named (iNaturalist: supercategory/class), and a folder that is a
link is followed. Files that are no pictures are ignored, and so is everything whose name begins with a dot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from isogclr.errors import DataError
from isogclr.shard_index.sample_keys import IMAGE_SUFFIXES

SUFFIXES = frozenset((*IMAGE_SUFFIXES, "bmp", "gif", "pgm", "ppm", "tif", "tiff"))
_PARTS = frozenset(("train", "training", "val", "valid", "validation", "test", "testing"))


def is_picture(name: str) -> bool:
    """By the end of the name; `._x.jpg` is what some systems leave beside `x.jpg`."""
    stem, dot, suffix = name.rpartition(".")
    return bool(dot) and bool(stem) and not name.startswith(".") and suffix.lower() in SUFFIXES


def picture_names(folder: str) -> list[str]:
    """The pictures directly in a folder, sorted."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if is_picture(entry.name) and entry.is_file())


def picture_sizes(folder: str, names: list[str]) -> list[int]:
    return [os.stat(os.path.join(folder, name)).st_size for name in names]  # noqa: PTH116, PTH118 (a million of them)


def folders_with_pictures(root: str) -> list[str]:
    """All folders at or below `root` that hold pictures, sorted by the path below it. None lies inside another."""
    found = sorted(_walk(Path(root), ()), key=lambda path: path.relative_to(root).parts)
    for one, other in pairwise(found):
        if other.is_relative_to(one):
            raise DataError(
                f"{one} holds pictures, and so does {other} inside it: which of them is the class? Move the "
                "pictures so that each is in the folder of its class, and folders of classes hold no others"
            )
    parts = sorted({path.relative_to(root).parts[0] for path in found if len(path.relative_to(root).parts) > 1})
    mixed = [name for name in parts if name.lower() in _PARTS]
    if mixed:
        raise DataError(
            f"{root} holds the part {mixed[0]} of a data set, with its classes inside: name {root}/{mixed[0]}"
        )
    return [str(path) for path in found]


def _walk(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """Depth first. A link that leads back to a folder above is not followed again."""
    known = folder.stat()
    identity = (known.st_dev, known.st_ino)
    if identity in above:
        return
    with os.scandir(folder) as entries:
        visible = sorted(
            (entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name
        )
    if any(is_picture(entry.name) and entry.is_file() for entry in visible):
        yield folder
    for entry in visible:
        if entry.is_dir():
            yield from _walk(folder / entry.name, (*above, identity))
