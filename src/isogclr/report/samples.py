"""Images and captions of chosen rows, read back from the shards that they were trained on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isogclr.csv_table import CsvColumns, read_table
from isogclr.errors import IsogclrError, UnknownShardError
from isogclr.report.scan import Intervals, Rows
from isogclr.shard_index.files import CSV
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.sample_keys import CAPTION_SUFFIX, IMAGE_SUFFIXES
from isogclr.shard_index.tar_samples import DAMAGE, read_samples

_LARGEST_FILE_BYTES = 64 << 20  # a picture beyond that is not opened


@dataclass(frozen=True)
class Source:
    """A sample as its shard holds it; an image or a caption that is not there is None, `problem` says why."""

    row: int
    shard: str
    key: str
    image: bytes | Callable[[], Any] | None = None  # a file, or what opens one of Pillow's pictures
    caption: str | None = None
    problem: str = ""


class SampleReader:
    """Reads samples by row, shard by shard.

    Args:
        index: of the run.
        shards: where the shards are now, if not where the index saw them last.
        columns: separator and column names of CSV data.
        needed: which of `image` and `caption` a sample must have; one without has a problem.
    """

    def __init__(
        self,
        index: ShardIndex,
        shards: Sequence[str] | None,
        columns: CsvColumns,
        needed: Sequence[str] = ("image", "caption"),
    ) -> None:
        self.index, self.columns, self._needed = index, columns, tuple(needed)
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
        except (*DAMAGE, IsogclrError) as error:
            reason = f"{self._urls.get(shard, shard)}: {error}"
            self.problems.setdefault(shard, reason)
        for key, row in missing.items():
            yield Source(row, shard, key, problem=reason)

    def _samples(self, shard: str, keys: set[str]) -> Iterator[tuple[str, dict[str, bytes]]]:
        number = self.index.find_id(shard)
        url = self._urls[shard]
        if number is not None and self.index.files.tables.shards[number]["kind"] == CSV:
            return _table_samples(url, keys, self.columns)
        return read_samples(url, keys, _LARGEST_FILE_BYTES)


def _table_samples(path: str, keys: set[str], columns: CsvColumns) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Rows of a table; the key of a row is its position."""
    images, captions = read_table(path, columns, as_text=True)
    for position, (image, caption) in enumerate(zip(images, captions, strict=True)):
        if str(position) not in keys:
            continue
        files = {CAPTION_SUFFIX: caption.encode()}
        picture = Path(image)
        if picture.is_file() and picture.stat().st_size <= _LARGEST_FILE_BYTES:
            files[IMAGE_SUFFIXES[0]] = picture.read_bytes()
        yield str(position), files


def _source(row: int, shard: str, key: str, members: dict[str, Any], needed: Sequence[str]) -> Source:
    image = next((members[suffix] for suffix in IMAGE_SUFFIXES if suffix in members), None)
    caption = members[CAPTION_SUFFIX].decode("utf-8", "replace") if CAPTION_SUFFIX in members else None
    found = {"image": image, "caption": caption}
    lacking = [what for what in needed if found[what] is None]
    problem = f"the sample has no {' and no '.join(lacking)}" if lacking else ""
    return Source(row, shard, key, image, caption, problem)
