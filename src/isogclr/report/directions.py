"""The directions of a run: which sides of a sample have a temperature. Nowhere else are they known by name.

A loss over pictures and captions has two, `image` and `text`; one over two views of a picture has one. In the code
of the report a `side` is one of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

Directions = tuple[str, ...]
UNKNOWN: Directions = ("image", "text")  # of a run that says nothing of its directions
_CAPTIONS = "text"  # the side whose inputs are captions; those of every other are pictures
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
_COLUMN, _LOGGED = "_temperature", ".temperature.mean"


def directions_of(config: Mapping[str, Any], columns: Sequence[str], logged: Collection[str]) -> Directions:
    """From the first source that names any.

    Args:
        config: config.json of the run, whose `directions` is a list of names.
        columns: of its store, such as `image_temperature`.
        logged: names in its metrics.jsonl, such as `image.temperature.mean`.
    """
    named = config.get("directions")
    if isinstance(named, list) and named and all(isinstance(side, str) and _NAME.fullmatch(side) for side in named):
        return tuple(dict.fromkeys(named))
    return _with_suffix(columns, _COLUMN) or _with_suffix(sorted(logged), _LOGGED) or UNKNOWN


def temperature_column(side: str) -> str:
    """Its column in the store."""
    return f"{side}{_COLUMN}"


def sides_in(columns: Sequence[str]) -> Directions:
    """Those that have a temperature among the columns of a store."""
    return _with_suffix(columns, _COLUMN)


def together(found: Iterable[Directions]) -> Directions:
    """The directions of several runs, each once, in the order in which they come."""
    return tuple(dict.fromkeys(side for directions in found for side in directions))


def opposite(directions: Directions, side: str) -> str:
    """What a side is compared with: the other one, or itself where there is no other."""
    return directions[(directions.index(side) + 1) % len(directions)]


def reads_captions(side: str) -> bool:
    """Whether its inputs are captions, not pictures."""
    return side == _CAPTIONS


def reads_pictures(side: str) -> bool:
    """Whether its inputs are pictures."""
    return not reads_captions(side)


def inputs_of(directions: Directions) -> tuple[str, ...]:
    """What a sample must have for these directions: `image`, `caption`, or both."""
    wanted = (("image", reads_pictures), ("caption", reads_captions))
    return tuple(name for name, is_read in wanted if any(map(is_read, directions)))


def inputs_named(directions: Directions, joint: str = "and") -> str:
    """The same as in a sentence: `pictures and captions`."""
    names = {"image": "pictures", "caption": "captions"}
    return f" {joint} ".join(names[one] for one in inputs_of(directions))


def listed(names: Iterable[str]) -> str:
    """As in a sentence: `image and text`."""
    return " and ".join(names)


def _with_suffix(names: Iterable[str], suffix: str) -> Directions:
    found = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
    return tuple(side for side in found if _NAME.fullmatch(side))
