"""Images and captions of chosen rows, read back from the shards that they were trained on."""

from __future__ import annotations

import csv
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from isogclr.errors import IsogclrError, UnknownShardError
from isogclr.report.scan import Intervals, Rows
from isogclr.shard_index.files import CSV
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.listing import local_path

_IMAGES = ("jpg", "png", "jpeg", "webp")  # in the order of open_clip's reader
_NAME = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)\Z")
_DAMAGE = (OSError, tarfile.TarError, EOFError, ValueError, zlib.error)  # what a shard that is not sound may raise
_LARGEST_MEMBER_BYTES = 64 << 20  # a picture beyond that is not opened


@dataclass(frozen=True)
class Source:
    """A sample as its shard holds it; an image or a caption that is not there is None, `problem` says why."""

    row: int
    shard: str
    key: str
    image: bytes | None = None
    caption: str | None = None
    problem: str = ""


class SampleReader:
    """Reads samples by row, shard by shard.

    Args:
        index: of the run.
        shards: where the shards are now, if not where the index saw them last.
        columns: separator and column names of CSV data.
        needs_captions: whether a sample without one has a problem.
    """

    def __init__(
        self,
        index: ShardIndex,
        shards: Sequence[str] | None,
        columns: tuple[str, str, str],
        *,
        needs_captions: bool = True,
    ) -> None:
        self.index, self.columns = index, columns
        self._needed = ("image", "caption") if needs_captions else ("image",)
        self.problems: dict[str, str] = {}  # by shard
        self._urls = {shard.id: shard.url for shard in index.shards()}
        for url in shards or ():
            try:
                self._urls[index.shards()[index.find(url)].id] = url
            except UnknownShardError as error:
                self.problems[url] = str(error)

    def some_shards(self, count: int, seed: int = 0) -> Intervals | None:
        """The rows of so many random shards, so that a sample of rows does not open all; None if that is all."""
        tables = self.index.files.tables
        if len(tables.shards) <= count:
            return None
        chosen = np.random.default_rng(seed).choice(len(tables.shards), count, replace=False)
        segments = tables.segments[np.isin(tables.segments["shard"], chosen)]
        segments = segments[np.argsort(segments["first_row"])]
        first = segments["first_row"].astype(np.int64)
        return first, first + segments["rows"].astype(np.int64)

    def read(self, rows: Rows) -> Iterator[Source]:
        """One source per row, in the order of the shards."""
        places: dict[str, dict[str, int]] = {}
        for row, (shard, key) in zip(rows.tolist(), self.index.locate(rows), strict=True):
            places.setdefault(shard, {})[key] = row
        for shard in sorted(places):
            yield from self._read_shard(shard, places[shard])

    def _read_shard(self, shard: str, wanted: Mapping[str, int]) -> Iterator[Source]:
        missing = dict(wanted)
        reason = "the shard no longer holds this key"
        try:
            for key, members in self._samples(shard, set(wanted)):
                row = missing.pop(key, None)
                if row is not None:
                    yield _source(row, shard, key, members, self._needed)
                if not missing:
                    return
        except (*_DAMAGE, IsogclrError) as error:
            reason = f"{self._urls.get(shard, shard)}: {error}"
            self.problems.setdefault(shard, reason)
        for key, row in missing.items():
            yield Source(row, shard, key, problem=reason)

    def _samples(self, shard: str, keys: set[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
        number = self.index.find_id(shard)
        url = self._urls[shard]
        if number is not None and self.index.files.tables.shards[number]["kind"] == CSV:
            return _table_samples(url, keys, self.columns)
        return _tar_samples(url, keys)


def _open(url: str) -> IO[bytes]:
    path = local_path(url)
    if path is not None:
        return Path(path).open("rb")
    from webdataset.gopen import gopen  # noqa: PLC0415 (slow to import; local shards do without)

    stream: IO[bytes] = gopen(url)
    return stream


def _tar_samples(url: str, keys: set[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Samples with these keys; where the shard is damaged, what came before, then the error."""
    damage: Exception | None = None
    current = ""
    members: dict[str, bytes] = {}
    found = _tar_members(url, keys)
    while True:
        try:
            key, suffix, payload = next(found)
        except StopIteration:
            break
        except _DAMAGE as error:
            damage = error
            break
        if members and (key != current or suffix in members):
            yield current, members
            members = {}
        current = key
        members[suffix] = payload
    if members:
        yield current, members
    if damage is not None:
        raise damage


def _tar_members(url: str, keys: set[str]) -> Iterator[tuple[str, str, bytes]]:
    """Key, suffix and payload of the files of some keys; others are passed over, by seeking where that can be."""
    mode: Any = "r:*" if local_path(url) is not None else "r|*"
    with (
        _open(url) as stream,
        tarfile.open(fileobj=stream, mode=mode, encoding="utf-8", errors="surrogateescape") as archive,
    ):
        for member in archive:
            match = _NAME.match(member.name)
            wanted = match is not None and match[1] in keys and member.isreg()
            if match is not None and wanted and member.size <= _LARGEST_MEMBER_BYTES:
                payload = archive.extractfile(member)
                yield match[1], match[2].lower(), b"" if payload is None else payload.read()
            archive.members = []  # type: ignore[attr-defined]  # or it would remember every header


def _table_samples(
    path: str, keys: set[str], columns: tuple[str, str, str]
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Rows of a CSV file; the key of a row is its position."""
    separator, image_column, caption_column = columns
    with Path(path).open(encoding="utf-8", newline="") as file:
        for position, row in enumerate(csv.DictReader(file, delimiter=separator)):
            if str(position) not in keys:
                continue
            members = {"txt": str(row.get(caption_column) or "").encode()}
            image = Path(str(row.get(image_column) or ""))
            if image.is_file() and image.stat().st_size <= _LARGEST_MEMBER_BYTES:
                members["jpg"] = image.read_bytes()
            yield str(position), members


def _source(row: int, shard: str, key: str, members: dict[str, Any], needed: Sequence[str]) -> Source:
    image = next((members[suffix] for suffix in _IMAGES if suffix in members), None)
    caption = members["txt"].decode("utf-8", "replace") if "txt" in members else None
    found = {"image": image, "caption": caption}
    lacking = [what for what in needed if found[what] is None]
    problem = f"the sample has no {' and no '.join(lacking)}" if lacking else ""
    return Source(row, shard, key, image, caption, problem)
