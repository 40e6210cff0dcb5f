"""Decide, for each shard of the sources, whether the index knows it, whether it moved, and whether to read it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from isogclr.errors import UnknownShardError
from isogclr.shard_index.ids import components
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.listing import UNKNOWN, Listing, shard_stat

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
    doubtful: list[KnownShard] = []
    claimed = _exact(urls, old)
    exact = set(claimed.values())
    for url in urls:
        file_bytes, modified_ns = shard_stat(url)
        shard = claimed.get(url)
        if shard is None and old is not None:
            shard = find_known(url, old, exact)
            if shard is not None:
                exact.add(shard)
                doubtful.append(KnownShard(shard, url, file_bytes, modified_ns, moved=True))
                continue
        if shard is None or old is None:
            plan.new.append(url)
            continue
        plan.known.append(KnownShard(shard, url, file_bytes, modified_ns))
        if reread or _touched(old, plan.known[-1]):
            plan.changed.add(shard)
    if old is not None:
        _settle(plan, doubtful, old, list_shards)
    order = {url: position for position, url in enumerate(urls)}
    plan.new.sort(key=order.__getitem__)
    return plan


def _exact(urls: Sequence[str], old: ShardIndex | None) -> dict[str, int]:
    """The shards that are still where they were."""
    if old is None:
        return {}
    places = {components(old.files.tables.url(shard)): shard for shard in range(old.number_of_shards)}
    return {url: places[components(url)] for url in urls if components(url) in places}


def find_known(url: str, old: ShardIndex, claimed: Collection[int]) -> int | None:
    """A shard with this name that is not taken, or None."""
    try:
        return old.find(url, without=claimed)
    except UnknownShardError:
        return None  # none, or two that could be meant: take it for a new one


def _touched(old: ShardIndex, known: KnownShard) -> bool:
    """Whether size or time differ. What is no local file is taken to be unchanged."""
    record = old.files.tables.shards[known.shard]
    return (known.file_bytes, known.modified_ns) != (int(record["file_bytes"]), int(record["modified_ns"]))


def _settle(plan: Plan, doubtful: list[KnownShard], old: ShardIndex, list_shards: ListShards) -> None:
    """A shard with a known name in another place was moved if its members are the same; otherwise it is new."""
    to_read: list[KnownShard] = []
    for one in doubtful:
        unread = one.file_bytes != UNKNOWN and not _touched(old, one)
        (plan.known if unread else to_read).append(one)
    for one, listing in zip(to_read, list_shards([one.url for one in to_read]), strict=True):
        if listing.digest == old.files.tables.shards[one.shard]["digest"].tobytes():
            plan.known.append(one)
            plan.notes.extend(listing.notes)
            continue
        plan.new.append(one.url)
        plan.notes.append(
            f"shard {one.url} has the name of {old.files.tables.url(one.shard)} but other content: it gets rows of "
            "its own. If it is the same shard, moved and changed, build the index at the old place first"
        )
