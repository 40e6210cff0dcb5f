"""Pictures in webdataset shards. A label is the number in a `.cls` file, or a field of a `.json` file."""

from __future__ import annotations

import io
import json
import logging
import tarfile
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from PIL import Image

from isogclr.errors import DataError, missing_shard
from isogclr.packed_texts import PackedTexts
from isogclr.pictures.picture_set import NO_LABEL, Labels, Pictures, Rows, digest_of, shard_names
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.addresses import local_path
from isogclr.shard_index.listing import NAMES, open_shard
from isogclr.shard_index.picture_listing import list_samples
from isogclr.shard_index.sample_keys import IMAGE_SUFFIXES, split_name
from isogclr.shard_index.tar_samples import DAMAGE, read_samples

LABEL_SUFFIX = "cls"
JSON_SUFFIX = "json"
_LARGEST_LABEL_BYTES = 1 << 20
_LARGEST_LABEL = 1_000_000  # a larger one is no class: a timestamp, an identity


class _Sample(NamedTuple):
    """A sample of a shard with a picture in it."""

    key: str
    start: int  # of the picture in the file; −1 if that can not be read from any byte
    size: int
    label: str | int | None


class _Contents(NamedTuple):
    """All pictures of all shards, in the order of the data."""

    order: Rows
    shard: Rows
    keys: PackedTexts
    starts: Rows
    sizes: Rows
    labels: Labels | None  # in the order of the data
    classes: tuple[str, ...] | None
    places: Rows  # by row


class ShardPictures(Pictures):
    """Shards. What is in them is looked at when it is first asked for, in one pass over their headers.

    Args:
        label: `cls`, or the name of a field of the `json` file of a sample.
    """

    def __init__(self, shards: Sequence[str], index: ShardIndex | None, label: str) -> None:
        super().__init__(shards, index)
        self.label = label
        self._unpacked: tuple[int, dict[str, bytes]] | None = None  # pictures of a shard in which nobody can seek
        self._ids = shard_names(shards, index)
        if index is None:
            listings = [list_samples(url) for url in self.shards]
            counts = [len(one.ends) for one in listings]
            self._firsts = np.cumsum([0, *counts])
            self.rows = int(self._firsts[-1])
            self.digest = digest_of(self.shards, [one.digest for one in listings])
        else:
            self.rows = index.number_of_rows
            self.digest = index.content_digest([index.find(url) for url in self.shards])

    @cached_property
    def _contents(self) -> _Contents:
        # Arrays, and no list of samples: there may be millions of them.
        rows, shard, starts, sizes, codes = (array("q") for _ in range(5))
        values: dict[str | int | None, int] = {}

        def keys() -> Iterator[str]:
            for number, url in enumerate(self.shards):
                for row, sample in self._distinct(number, url):
                    for column, value in (
                        (rows, row),
                        (shard, number),
                        (starts, sample.start),
                        (sizes, sample.size),
                    ):
                        column.append(value)
                    codes.append(values.setdefault(sample.label, len(values)))
                    yield sample.key

        texts = PackedTexts(keys())
        if not rows:
            raise DataError(
                f"{self.shards[0]} and its {len(self.shards) - 1:,} companions hold no picture: expected members "
                f"like 000001.jpg ({', '.join(IMAGE_SUFFIXES)})"
            )
        numbers, classes = _numbered(list(values))
        labels = None if numbers is None else numbers[np.asarray(codes)]
        order = np.asarray(rows)
        places = np.full(self.rows, -1, dtype=np.int64)
        places[order] = np.arange(len(order))
        return _Contents(
            order, np.asarray(shard), texts, np.asarray(starts), np.asarray(sizes), labels, classes, places
        )

    def _distinct(self, number: int, url: str) -> Iterator[tuple[int, _Sample]]:
        """A key that is twice in a shard is one row; the first counts."""
        known = None if self.index is None else self.index.shard(url)
        seen: dict[str, int] = {}
        try:
            for key, sample in _samples(url, self.label):
                if key in seen:
                    continue
                seen[key] = len(seen)
                if sample is not None:
                    yield int(self._firsts[number]) + seen[key] if known is None else known.row(key), sample
        except FileNotFoundError:
            raise missing_shard(url) from None
        except DAMAGE as error:
            logging.warning("shard %s: %r; the pictures that follow the damage are left out", url, error)

    def positions(self) -> Rows:
        return self._contents.order

    @cached_property
    def labels(self) -> Labels | None:
        contents = self._contents
        if contents.labels is None:
            return None
        found = np.full(self.rows, NO_LABEL, dtype=np.int64)
        found[contents.order] = contents.labels
        return found

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self._contents.classes

    def _place(self, row: int) -> int:
        place = int(self._contents.places[row]) if 0 <= row < self.rows else -1
        if place < 0:
            raise self._no_picture(row)
        return place

    def name(self, row: int) -> tuple[str, str]:
        place = self._place(row)
        return self._ids[int(self._contents.shard[place])], self._contents.keys[place]

    def read(self, row: int) -> Image.Image:
        """By seeking in a local shard. Of any other kind, compressed or elsewhere, the last one is kept in memory:
        pictures in the order of the data cost one reading of each shard."""
        place = self._place(row)
        contents = self._contents
        number = int(contents.shard[place])
        if contents.starts[place] >= 0:
            path = local_path(self.shards[number])
            assert path is not None
            with open(path, "rb") as file:  # noqa: PTH123 (an address)
                file.seek(int(contents.starts[place]))
                return _decode(file.read(int(contents.sizes[place])))
        if self._unpacked is None or self._unpacked[0] != number:
            self._unpacked = number, _pictures_of(self.shards[number])
        data = self._unpacked[1].get(contents.keys[place])
        if data is None:
            raise self._no_picture(row)
        return _decode(data)

    def scan(self) -> Iterator[tuple[int, Image.Image]]:
        """Shard after shard, each read once."""
        if (self._contents.starts >= 0).all():
            yield from super().scan()
            return
        for number, url in enumerate(self.shards):
            places = np.flatnonzero(self._contents.shard == number).tolist()
            wanted = {self._contents.keys[place]: int(self._contents.order[place]) for place in places}
            for key, files in read_samples(url):
                if key in wanted:
                    yield wanted.pop(key), _decode(_image(files))


def _pictures_of(url: str) -> dict[str, bytes]:
    """By key; of a key that is there twice, the first."""
    found: dict[str, bytes] = {}
    for key, files in read_samples(url):
        if key not in found and any(suffix in files for suffix in IMAGE_SUFFIXES):
            found[key] = _image(files)
    return found


def _image(files: dict[str, bytes]) -> bytes:
    return next(files[suffix] for suffix in IMAGE_SUFFIXES if suffix in files)


def _decode(data: bytes) -> Image.Image:
    with Image.open(io.BytesIO(data)) as opened:
        return opened.convert("RGB")


def _samples(url: str, label: str) -> Iterator[tuple[str, _Sample | None]]:
    """Key and sample, in the order of the shard; None for a sample without a picture."""
    path = local_path(url)
    plain = path is not None and _is_plain(path)
    label_suffix = LABEL_SUFFIX if label == LABEL_SUFFIX else JSON_SUFFIX
    current = ""
    files: dict[str, tuple[int, int]] = {}
    text = b""
    with open_shard(url) as stream, tarfile.open(fileobj=stream, mode="r:" if plain else "r|*", **NAMES) as archive:
        for member in archive:
            name = split_name(member.name.encode("utf-8", "surrogateescape")) if member.isreg() else None
            if name is None:
                continue
            key, suffix = (part.decode("utf-8", "surrogateescape") for part in name)
            if files and (key != current or suffix in files):
                yield current, _sample(current, files, text, label, url)
                files, text = {}, b""
            current = key
            files[suffix] = (member.offset_data if plain else -1, member.size)
            if suffix == label_suffix and member.size <= _LARGEST_LABEL_BYTES:
                payload = archive.extractfile(member)
                text = b"" if payload is None else payload.read()
            archive.members = []  # type: ignore[attr-defined]  # or it would remember every header
    if files:
        yield current, _sample(current, files, text, label, url)


def _is_plain(path: str) -> bool:
    """Whether a picture can be read from the middle of the file: not in a compressed one."""
    try:
        with tarfile.open(path, mode="r:"):
            return True
    except (tarfile.TarError, OSError):
        return False


def _sample(key: str, files: dict[str, tuple[int, int]], text: bytes, label: str, url: str) -> _Sample | None:
    place = next((files[suffix] for suffix in IMAGE_SUFFIXES if suffix in files), None)
    return None if place is None else _Sample(key, *place, _label(text, label, f"{key} of {url}"))


def _label(text: bytes, label: str, where: str) -> str | int | None:
    """The number in a `.cls` file, a field of a `.json` file; None if there is none."""
    if not text.strip():
        return None
    if label == LABEL_SUFFIX:
        found = text.strip()
        if not found.isdigit() or int(found) > _LARGEST_LABEL:
            raise DataError(f"the label of {where} is {found[:40]!r}, expected the number of a class, from 0 on")
        return int(found)
    try:
        value = json.loads(text).get(label)
    except (ValueError, AttributeError) as error:
        raise DataError(f"the .json file of {where} holds no fields ({error}): expected an object") from None
    return value if value is None or (isinstance(value, int) and value >= 0) else str(value)


def _numbered(found: list[str | int | None]) -> tuple[Labels | None, tuple[str, ...] | None]:
    """Label of each value: numbers are labels already; names get theirs in sorted order."""
    known = {one for one in found if one is not None}
    if not known:
        return None, None
    if all(isinstance(one, int) for one in known):
        numbers = {one: int(one) for one in known}
        classes = tuple(map(str, range(max(numbers.values()) + 1)))
    else:
        classes = tuple(sorted({str(one) for one in known}))
        places = {name: place for place, name in enumerate(classes)}
        numbers = {one: places[str(one)] for one in known}
    return np.array([NO_LABEL if one is None else numbers[one] for one in found], dtype=np.int64), classes
