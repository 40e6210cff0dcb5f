"""Which image of a data set can not be decoded. Asked only after a failure: readers do not say which it was."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO

from PIL import Image, UnidentifiedImageError

from isogclr.evaluation.data_folders import Located
from isogclr.shard_index.sample_keys import IMAGE_SUFFIXES

_IMAGES = tuple(f".{suffix}" for suffix in IMAGE_SUFFIXES)


def unreadable_image(located: Located) -> str | None:
    """Name and reason of the first image that PIL refuses, None if it reads them all."""
    for name, open_image in _shard_images(located) if located.shards else _native_images(located.folder):
        try:
            with open_image() as stream, Image.open(stream) as image:
                image.load()
        except Exception as error:  # PIL raises whatever the decoder met, not only OSError
            reason = "no image format" if isinstance(error, UnidentifiedImageError) else str(error)
            return f"image {name} can not be decoded: {type(error).__name__}: {reason}"
    return None


def _shard_images(located: Located) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    for number in range(located.shards):
        shard = located.folder / "test" / f"{number}.tar"
        try:
            with tarfile.open(shard) as archive:
                for member in archive:
                    if member.isfile() and member.name.lower().endswith(_IMAGES):
                        content = archive.extractfile(member)
                        assert content is not None
                        yield f"{member.name} in {shard}", partial(io.BytesIO, content.read())
        except (tarfile.TarError, OSError):
            return  # not an image is damaged, but the shard: the reader's own message says so


def _native_images(folder: Path) -> Iterator[tuple[str, Callable[[], IO[bytes]]]]:
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _IMAGES:
            yield str(path), partial(io.FileIO, path)
