"""CIFAR-10 and CIFAR-100 as their official archives (python version) are unpacked.

    cifar-10-batches-py/  data_batch_1 … data_batch_5, test_batch, batches.meta
    cifar-100-python/     train, test, meta

A file of pictures is a shard, and a picture's key is its place in that file. The pixels stay in the file, which is
mapped: all ranks and workers of a machine share one copy of them. No pickle is ever loaded (`plain_pickle.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.errors import DataError, unreadable_shard
from isogclr.shard_index.plain_pickle import ArrayPlace, PlainPickleError, read_plain

SIDE = 32
_PIXELS = (3, SIDE, SIDE)
_AGAIN = "unpack the official archive again (python version)"


@dataclass(frozen=True)
class Layout:
    """The names inside one archive."""

    folder: str
    parts: Mapping[str, tuple[str, ...]]
    labels: str
    meta: str
    meta_names: str


LAYOUTS = (
    Layout(
        "cifar-10-batches-py",
        {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
        "labels",
        "batches.meta",
        "label_names",
    ),
    Layout("cifar-100-python", {"train": ("train",), "test": ("test",)}, "fine_labels", "meta", "fine_label_names"),
)
_NAMES = {name for layout in LAYOUTS for names in layout.parts.values() for name in names}


@dataclass(frozen=True)
class CifarBatch:
    """Pictures [n, 3, 32, 32] uint8, mapped, and their labels [n]."""

    pixels: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]

    def digest(self) -> bytes:
        found = hashlib.blake2b(np.ascontiguousarray(self.pixels).data, digest_size=16)
        found.update(self.labels.astype("<i8").tobytes())
        return found.digest()


def is_batch_file(path: Path) -> bool:
    """By name and by the first byte, which no tar begins with."""
    if path.name not in _NAMES or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) in (b"\x80", b"")


def find_layout(folder: Path) -> tuple[Path, Layout] | None:
    """The folder of an archive, or the one folder of an archive inside this folder; None if there is neither."""
    for layout in LAYOUTS:
        if folder.name == layout.folder or any((folder / name).is_file() for name in (*_all(layout), layout.meta)):
            return folder, layout
    inside = [(folder / layout.folder, layout) for layout in LAYOUTS if (folder / layout.folder).is_dir()]
    if len(inside) > 1:
        found = " and ".join(str(one) for one, _ in inside)
        raise DataError(f"{folder} holds {found}: name one of them")
    return inside[0] if inside else None


def _all(layout: Layout) -> list[str]:
    return [name for names in layout.parts.values() for name in names]


def batch_files(folder: Path, layout: Layout, split: str) -> list[str]:
    """The files of one part; all of them must be there."""
    if split not in layout.parts:
        raise DataError(f"{folder} has the parts {' and '.join(layout.parts)}, and {split!r} was asked for")
    files = [folder / name for name in layout.parts[split]]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise DataError(f"{folder} has no {' and no '.join(missing)}: the archive is not complete; {_AGAIN}")
    return [str(file) for file in files]


def class_names(folder: Path, layout: Layout) -> tuple[str, ...] | None:
    """From the file of names; None if there is none."""
    path = folder / layout.meta
    if not path.is_file():
        return None
    names = _read(path).get(layout.meta_names)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise unreadable_shard(str(path), f"it has no list {layout.meta_names}; {_AGAIN}")
    return tuple(names)


def read_batch(path: Path) -> CifarBatch:
    """Map one file of pictures."""
    content = _read(path)
    place = content.get("data")
    labels = next((content[one.labels] for one in LAYOUTS if one.labels in content), None)
    if not isinstance(place, ArrayPlace) or not isinstance(labels, list):
        raise unreadable_shard(
            str(path), f"it holds {', '.join(map(str, content))}, expected data and labels; {_AGAIN}"
        )
    numbers = np.array(labels)
    if place.shape != (len(labels), int(np.prod(_PIXELS))) or numbers.dtype != np.int64 or numbers.min() < 0:
        raise unreadable_shard(
            str(path),
            f"it has {len(labels):,} labels for an array of shape {place.shape}, expected 3,072 bytes "
            f"and a number for each picture; {_AGAIN}",
        )
    order: Any = "F" if place.is_fortran else "C"
    mapped = np.memmap(path, dtype=np.uint8, mode="r", offset=place.start, shape=place.shape, order=order)
    return CifarBatch(mapped.reshape(-1, *_PIXELS), numbers)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_plain(path)
    except OSError as error:
        raise unreadable_shard(str(path), str(error)) from error
    except PlainPickleError as error:
        raise unreadable_shard(str(path), f"{error}; {_AGAIN}") from None
    if not isinstance(content, dict):
        raise unreadable_shard(str(path), f"it holds no dictionary but a {type(content).__name__}; {_AGAIN}")
    return content
