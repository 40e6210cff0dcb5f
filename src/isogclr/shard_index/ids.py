"""The name of a shard that outlives a move of the data set.

Shard names repeat across sources (`cc3m/00000.tar`, `cc12m/00000.tar`), and directories change when a data set is
copied to another disk. A shard's id is the shortest end of its path that no other shard had when it was first
indexed; from then on it is frozen. A shard is found again by its full address, and failing that by an id that its
address ends with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from isogclr.errors import UnknownShardError


def components(url: str) -> tuple[str, ...]:
    """The parts of an address between slashes, last one first; `a//b`, `./a/b` and `a/b` are the same."""
    parts = [part for part in url.split("/") if part not in ("", ".")]
    return (*reversed(parts), "") if url.startswith("/") or not parts else tuple(reversed(parts))


def starts_with(parts: tuple[str, ...], beginning: tuple[str, ...]) -> bool:
    return parts[: len(beginning)] == beginning


def shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many components two addresses have in common, counted from their ends."""
    return next(
        (count for count, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def assign_ids(urls: Sequence[str], taken: Iterable[tuple[str, str]]) -> list[str]:
    """Ids for new shards. `taken` holds (id, address) of those that have one; all addresses differ."""
    taken = list(taken)
    frozen = {identity for identity, _ in taken}
    used = set(map(components, frozen))
    new = [components(url) for url in urls]
    rivals = [*new, *(components(url) for _, url in taken)]
    found: dict[int, tuple[str, ...]] = {}
    count = 0
    while len(found) < len(new):
        count += 1
        holders = Counter(parts[:count] for parts in rivals)
        for position, parts in enumerate(new):
            end = parts[:count]
            if position not in found and ((holders[end] <= 1 and end not in used) or len(parts) <= count):
                found[position] = end
                used.add(end)
        rivals = [parts for parts in rivals if holders[parts[:count]] > 1]  # the others stay unique further up
    return [_spelled(found[position], frozen) for position in range(len(new))]


def _spelled(end: tuple[str, ...], taken: set[str]) -> str:
    """A relative address can be the end of an older one and have no end of its own; then it is marked as such."""
    text = "/".join(reversed(end))
    return f"./{text}" if text in taken else text


@dataclass(frozen=True)
class Candidate:
    """A known shard with the same last component as an address that is looked for."""

    shard: int
    id: str
    url: str


def choose(url: str, candidates: Sequence[Candidate]) -> int | None:
    """The shard that an address means; None if there is none. Raises when two could be meant.

    The same address always wins. Otherwise the id must be an end of the address, and if several shards have the
    same last component, the address must share more of its end with the chosen one's than with any other's: a
    directory that was renamed could otherwise pass its shards off as another source's.
    """
    parts = components(url)
    for candidate in candidates:
        if components(candidate.url) == parts:
            return candidate.shard
    likeness = {candidate.shard: shared(parts, components(candidate.url)) for candidate in candidates}
    fitting = [candidate for candidate in candidates if starts_with(parts, components(candidate.id))]
    if not fitting:
        return None
    best = max(fitting, key=lambda candidate: (likeness[candidate.shard], len(candidate.id)))
    rivals = [one.url for one in candidates if one is not best and likeness[one.shard] >= likeness[best.shard]]
    if rivals:
        raise UnknownShardError(
            f"shard {url} could be {best.url} or {rivals[0]}, which the index holds under the same name: "
            "keep the names of their directories when you move them, or build the index again at the new place"
        )
    return best.shard
