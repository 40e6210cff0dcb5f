"""Decide, for each shard of the sources, whether the index knows it, whether it moved, and whether to read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from isogclr.errors import ShardIndexError, UnknownShardError
from isogclr.shard_index.addresses import UNKNOWN, local_path, shard_stat
from isogclr.shard_index.files import CSV
from isogclr.shard_index.ids import components, shared, starts_with
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.listing import Listing

ListShards = Callable[[Sequence[str]], Iterator[Listing]]


@dataclass(frozen=True)
class KnownShard:
    """A shard of the old index, at its present address."""

    shard: int
    url: str
    file_bytes: int
    modified_ns: int
    moved: bool = False


@dataclass
class Plan:
    """`known` shards keep their id; of these, the ones in `changed` are read. `new` ones are read and get an id."""

    known: list[KnownShard] = field(default_factory=list)
    changed: set[int] = field(default_factory=set)
    new: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_shards(urls: Sequence[str], old: ShardIndex | None, reread: bool, list_shards: ListShards) -> Plan:
    """Sort the addresses (without repetitions) into a plan."""
    plan = Plan()
    claimed = _exact(urls, old)
    free = _Free(old, set(claimed.values()))
    elsewhere: list[KnownShard] = []
    for url in urls:
        stat = shard_stat(url)
        shard = claimed.get(url)
        if old is None or (shard is None and not free.has_namesake(url)):
            plan.new.append(url)
        elif shard is None:
            elsewhere.append(KnownShard(UNKNOWN, url, *stat, moved=True))
        else:
            _refuse_table(old, shard, url)
            plan.known.append(KnownShard(shard, url, *stat))
            if reread or _touched(old, plan.known[-1]):
                plan.changed.add(shard)
    _settle(plan, elsewhere, free, list_shards)
    order = {url: position for position, url in enumerate(urls)}
    plan.new.sort(key=order.__getitem__)
    return plan


def _exact(urls: Sequence[str], old: ShardIndex | None) -> dict[str, int]:
    """The shards that are still where they were."""
    if old is None:
        return {}
    places = {components(old.files.tables.url(shard)): shard for shard in range(old.number_of_shards)}
    return {url: places[components(url)] for url in urls if components(url) in places}


def find_known(url: str, old: ShardIndex) -> int | None:
    """The shard that this address means, or None."""
    try:
        return old.find(url)
    except UnknownShardError:
        return None  # none, or two that could be meant: take it for a new one


def _touched(old: ShardIndex, known: KnownShard) -> bool:
    """Whether size or time differ. What is no local file is taken to be unchanged."""
    record = old.files.tables.shards[known.shard]
    return (known.file_bytes, known.modified_ns) != (int(record["file_bytes"]), int(record["modified_ns"]))


def _refuse_table(old: ShardIndex, shard: int, url: str) -> None:
    if old.files.tables.shards[shard]["kind"] == CSV:
        raise ShardIndexError(
            f"{url} is a table in this index, and is now to be read as a shard: check --dataset-type, or choose "
            "another directory for the index"
        )


class _Free:
    """The known shards that are not at their old address, by last component, and by content within that."""

    def __init__(self, old: ShardIndex | None, claimed: Collection[int]) -> None:
        self.old = old
        self.names: dict[str, list[str]] = {}  # last component -> old addresses
        self.contents: dict[tuple[str, bytes], list[tuple[int, str]]] = {}
        for shard in range(old.number_of_shards) if old is not None else ():
            if shard not in claimed and old is not None:
                record, url = old.files.tables.shards[shard], old.files.tables.url(shard)
                name = components(url)[0]
                self.names.setdefault(name, []).append(url)
                self.contents.setdefault((name, record["digest"].tobytes()), []).append((shard, url))

    def has_namesake(self, url: str) -> bool:
        return components(url)[0] in self.names

    def may_be(self, shard: int, url: str) -> bool:
        """Whether the shard can have moved there: its id is an end of the address, or it has left its old place."""
        assert self.old is not None
        tables = self.old.files.tables
        if starts_with(components(url), components(tables.shard_id(shard))):
            return True
        path = local_path(tables.url(shard))
        return path is not None and not Path(path).exists()


def _settle(plan: Plan, elsewhere: list[KnownShard], free: _Free, list_shards: ListShards) -> None:
    """A shard at a new address was moved if one of its name had the same members; otherwise it is new.

    Contents decide, not size and time, which reproducible archives share. Where several fit, those whose paths
    are most alike belong together, whatever the order of the sources.
    """
    listings = list_shards([one.url for one in elsewhere])
    contents = [
        (listing.digest, listing.notes) for listing in listings
    ]  # not the keys: it may be the whole data set
    pairs = [
        (shared(components(one.url), components(old_url)), position, shard)
        for position, (one, (digest, _)) in enumerate(zip(elsewhere, contents, strict=True))
        for shard, old_url in free.contents.get((components(one.url)[0], digest), ())
        if free.may_be(shard, one.url)
    ]
    found: dict[int, int] = {}
    taken: set[int] = set()
    for _, position, shard in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if position not in found and shard not in taken:
            found[position] = shard
            taken.add(shard)
    for position, (one, (_, notes)) in enumerate(zip(elsewhere, contents, strict=True)):
        if position in found:
            plan.known.append(replace(one, shard=found[position]))
            plan.notes.extend(notes)
            continue
        plan.new.append(one.url)
        plan.notes.append(
            f"shard {one.url} has the name of {free.names[components(one.url)[0]][0]} but other content, or that "
            "one is still in its place: it gets rows of its own. If it is the same shard, moved and changed, build "
            "the index at the old place first"
        )
