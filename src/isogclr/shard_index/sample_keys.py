"""Which samples open_clip's reader makes of the files in a tar.

A name is `key.suffix`: the key reaches to the first dot behind the last slash, and suffixes are compared in lower
case. A sample goes on as long as the key stays and the suffix is new. open_clip's reader lets a sample run on into
the next shard if that one begins with the same key; here a sample ends with its shard, because which shard comes
next changes from epoch to epoch. So the index holds every (shard, key) that the reader can show, and at most one
more for such a pair of shards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

IMAGE_SUFFIXES = ("jpg", "png", "jpeg", "webp")  # in the order in which open_clip's pipeline looks for them
CAPTION_SUFFIX = "txt"
_NAME = re.compile(rb"((?:.*/|)[^.]+)[.]([^/]*)\Z")
_META = re.compile(rb"__[^/]*__(?:$|/)")
# The reader keeps these beside the suffixes, so that a file `a.__key__` would replace the key by its payload.
_RESERVED = frozenset((b"__key__", b"__url__"))


class ReservedSuffixError(ValueError):
    """A file that would replace the key or the address of its own sample; its name is the argument."""


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Key and suffix of a file, the suffix in lower case; None for a file that belongs to no sample."""
    key, dot, suffix = name.partition(b".")
    if b"/" in name:  # only then the pattern differs from a cut at the first dot
        match = _NAME.match(name)
        key, suffix = match.groups() if match else (b"", b"")
    if not key or not dot or (name[:2] == b"__" and _META.match(name)):
        return None
    return key, suffix.lower() if suffix.isascii() else _lower(suffix)


def sample_keys(names: Iterable[bytes], sizes: Iterable[int]) -> list[bytes]:
    """The key of each sample, in the order of the tar; a key can come several times."""
    keys: list[bytes] = []
    current: bytes | None = None
    suffixes: set[bytes] = set()
    bad = False
    for name, size in zip(names, sizes, strict=True):
        parts = split_name(name)
        if parts is None:
            continue
        key, suffix = parts
        if key != current or suffix in suffixes:
            if current is not None and not bad:
                keys.append(current)
            current, suffixes, bad = key, set(), False
        if suffix[:2] == b"__":
            if suffix in _RESERVED:
                raise ReservedSuffixError(name.decode("utf-8", "backslashreplace"))
            bad = bad or (suffix == b"__bad__" and size > 0)
        suffixes.add(suffix)
    if current is not None and not bad:
        keys.append(current)
    return keys


def _lower(suffix: bytes) -> bytes:
    return suffix.decode("utf-8", "surrogateescape").lower().encode("utf-8", "surrogateescape")
