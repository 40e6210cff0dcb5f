"""(shard, key) -> row.

    index = ShardIndex.build("data/{00000..00331}.tar", "cc3m.index")    # or ShardIndex.load("cc3m.index")
    rows = index.shard(sample["__url__"])                                # in memory: the table of this shard only
    rows.row(sample["__key__"])

An open index is a handful of mapped files, so it costs a data worker nothing but address space, and it is sent to
one as a path. The files are described in `docs/index_format.md`; `build.py` writes them.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from isogclr.errors import ShardIndexError, UnknownShardError
from isogclr.shard_index.check import check_size, reread_shards, verify_files
from isogclr.shard_index.files import CSV, NO_ROWS, IndexFiles, open_files
from isogclr.shard_index.ids import Candidate, choose, components
from isogclr.shard_index.rows import PositionRows, Rows, ShardRows

_OPEN_SHARDS = 2  # a reader goes through one shard after the other


class Location(NamedTuple):
    """What a row stands for. A key that is not UTF-8 has its odd bytes as surrogates, as webdataset has them."""

    shard: str
    key: str


class ShardInfo(NamedTuple):
    """A shard as the last build saw it; `present` says whether the sources named it."""

    id: str
    url: str
    samples: int
    present: bool


class ShardIndex:
    """An index that is open for reading."""

    def __init__(self, files: IndexFiles) -> None:
        self.files = files
        self._open: OrderedDict[int, ShardRows] = OrderedDict()
        self._last: tuple[str, ShardRows] | None = None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ShardIndex:
        """Open an index. Checks the header and the tables; the keys of a shard are checked when it is looked up."""
        return cls(open_files(Path(path).absolute()))

    @classmethod
    def build(cls, sources: str | Sequence[str], path: str | os.PathLike[str], **options: Any) -> ShardIndex:
        """Build an index or bring it up to date, and open it; the options are those of `build_index`."""
        from isogclr.shard_index.build import build_index  # noqa: PLC0415 (the builder reads old indexes through this class)

        build_index(sources, path, **options)
        return cls.load(path)

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return _reload, (str(self.files.path), self.fingerprint)

    @property
    def number_of_rows(self) -> int:
        return self.files.header.number_of_rows

    @property
    def number_of_shards(self) -> int:
        return len(self.files.tables.shards)

    @property
    def fingerprint(self) -> str:
        """Of what every row stands for. Two indexes with the same one can share a store of state."""
        return self.files.header.fingerprint

    def rows_at(self, fingerprint: str) -> int:
        """How many rows the index had when it had this fingerprint; all these rows have stayed where they were."""
        history = {
            NO_ROWS: 0,
            **{one.fingerprint: one.first_row + one.number_of_rows for one in self.files.header.rows},
        }
        if fingerprint not in history:
            raise ShardIndexError(
                f"the index at {self.files.path} never had the fingerprint {fingerprint[:16]}…, it has "
                f"{self.fingerprint[:16]}…: it belongs to another data set, or was built anew; "
                "use the index that the state was made with"
            )
        return history[fingerprint]

    def find(self, url: str) -> int:
        """The number of the shard that an address means."""
        chosen = choose(url, list(self._namesakes(url)))
        if chosen is None:
            raise UnknownShardError(
                f"shard {url} is not in the index at {self.files.path}, which holds {self.number_of_shards:,} "
                "shards: if it was added since, bring the index up to date with `isogclr index build`; "
                "otherwise this is the index of another data set"
            )
        return chosen

    def find_id(self, shard_id: str) -> int | None:
        return next((one.shard for one in self._namesakes(shard_id) if one.id == shard_id), None)

    def _namesakes(self, url: str) -> Iterator[Candidate]:
        """The shards with the same last component, by binary search in the sorted table."""
        tables = self.files.tables
        name = components(url)[0]
        first: tuple[str, ...] = (name,)
        position = bisect_left(tables.order, first, key=lambda shard: components(tables.shard_id(int(shard))))
        for shard in map(int, tables.order[position:]):
            shard_id = tables.shard_id(shard)
            if components(shard_id)[0] != name:
                return
            yield Candidate(shard, shard_id, tables.url(shard))

    def shard(self, url: str) -> ShardRows:
        """The rows of the shard with this address."""
        if self._last is None or self._last[0] != url:
            self._last = (url, self.shard_rows(self.find(url)))
        return self._last[1]

    def shard_rows(self, shard: int) -> ShardRows:
        """The rows of the shard with this number; the last few tables are kept."""
        if shard not in self._open:
            self._open[shard] = self._read_rows(shard)
            if len(self._open) > _OPEN_SHARDS:
                self._open.popitem(last=False)
        return self._open[shard]

    def row(self, shard: str, key: str | bytes) -> int:
        """One row, of a shard that is given by its id, as `locate` gives it, or by its address."""
        return self.shard_by_name(shard).row(key)

    def shard_by_name(self, name: str) -> ShardRows:
        """The rows of a shard that is given by its id or by its address."""
        number = self.find_id(name)
        return self.shard(name) if number is None else self.shard_rows(number)

    def shards(self) -> list[ShardInfo]:
        tables = self.files.tables
        return [
            ShardInfo(tables.shard_id(number), tables.url(number), int(record["samples"]), bool(record["present"]))
            for number, record in enumerate(tables.shards)
        ]

    def samples(self, shard: int) -> int:
        """How many keys the shard with this number had when it was last read."""
        return int(self.files.tables.shards[shard]["samples"])

    def row_ranges(self, shard: int) -> list[range]:
        """All rows of the shard with this number, without reading its keys."""
        segments = self.files.tables.segments
        own = segments[segments["shard"] == shard]
        return [range(first, first + rows) for first, rows in zip(own["first_row"], own["rows"], strict=True)]

    def content_digest(self, shards: Iterable[int]) -> str:
        """Of the ids and members of these shards, in this order: what a reader finds when it goes through them."""
        tables = self.files.tables
        digest = hashlib.blake2b(digest_size=16)
        for shard in shards:
            name = tables.shard_id(shard).encode("utf-8", "surrogateescape")
            digest.update(len(name).to_bytes(8, "little") + name + tables.shards[shard]["digest"].tobytes())
        return digest.hexdigest()

    def _read_rows(self, shard: int) -> ShardRows:
        tables = self.files.tables
        segments = tables.segments[tables.segments["shard"] == shard]
        shard_id = tables.shard_id(shard)
        if tables.shards[shard]["kind"] == CSV:
            return PositionRows(shard_id, [(int(one["first_row"]), int(one["rows"])) for one in segments])
        rows: dict[str, int] = {}
        for segment in segments:
            first = int(segment["first_row"])
            rows.update(zip(self._keys(segment), range(first, first + int(segment["rows"])), strict=True))
        return ShardRows(shard_id, rows)

    def _keys(self, segment: Any) -> list[str]:
        """The keys of a segment, in the order of their rows."""
        data = self.files.segment_bytes(segment)
        count = int(segment["rows"])
        ends = np.frombuffer(data, dtype="<u4", count=count).tolist()
        keys = bytes(data[4 * count : 4 * count + int(segment["key_bytes"])])
        starts = [0, *ends][:-1]
        if keys.isascii():
            text = keys.decode("ascii")
            return [text[start:end] for start, end in zip(starts, ends, strict=True)]
        return [keys[start:end].decode("utf-8", "surrogateescape") for start, end in zip(starts, ends, strict=True)]

    def locate(self, rows: Sequence[int] | npt.NDArray[np.integer[Any]]) -> list[Location]:
        """What each row stands for: the inverse of a lookup, for reports."""
        wanted = np.asarray(rows, dtype=np.int64)
        wrong = wanted[(wanted < 0) | (wanted >= self.number_of_rows)]
        if len(wrong):
            raise ShardIndexError(f"row {wrong[0]:,} is not in the index, which has {self.number_of_rows:,} rows")
        segments = self.files.tables.segments
        owners = np.searchsorted(segments["first_row"], wanted.astype(np.uint64), side="right") - 1
        found: list[Location] = [Location("", "")] * len(wanted)
        for owner in np.unique(owners):
            places = np.flatnonzero(owners == owner)
            for place, location in zip(places, self._locate_in(int(owner), wanted[places]), strict=True):
                found[place] = location
        return found

    def _locate_in(self, owner: int, rows: Rows) -> Iterator[Location]:
        tables = self.files.tables
        segment = tables.segments[owner]
        shard = int(segment["shard"])
        shard_id = tables.shard_id(shard)
        offsets = rows - int(segment["first_row"])
        if tables.shards[shard]["kind"] == CSV:
            earlier = tables.segments[:owner]
            before = int(earlier["rows"][earlier["shard"] == shard].sum())
            return (Location(shard_id, str(before + offset)) for offset in offsets)
        keys = self._keys(segment)
        return (Location(shard_id, keys[offset]) for offset in offsets)

    def check(self, urls: Iterable[str]) -> None:
        """Whether the index still describes these shards, by their sizes only; quick enough for every start."""
        for url in urls:
            check_size(self.files, self.find(url), url)

    def verify(self) -> None:
        """Read every byte of the index. Whether the shards still agree is asked of `verify_shards`."""
        verify_files(self.files)

    def verify_shards(
        self, urls: Sequence[str] | None = None, workers: int | None = None, progress: bool = False
    ) -> None:
        """Read the headers of all shards again, at these addresses or where the index saw them last."""
        tables = self.files.tables
        if urls is None:
            places = {tables.url(number): number for number in np.flatnonzero(tables.shards["present"]).tolist()}
        else:
            places = {url: self.find(url) for url in urls}
        reread_shards(self.files, places, workers, progress)


def _reload(path: str, fingerprint: str) -> ShardIndex:
    """What arrives in another process. A build in between is harmless: it does not move rows."""
    index = ShardIndex.load(path)
    index.rows_at(fingerprint)
    return index
