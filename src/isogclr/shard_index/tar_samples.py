"""The files of samples, read back from one shard by key."""

from __future__ import annotations

import contextlib
import tarfile
import zlib
from collections.abc import Collection, Iterator
from typing import Any

from isogclr.shard_index.addresses import local_path
from isogclr.shard_index.listing import NAMES, open_shard
from isogclr.shard_index.sample_keys import split_name

DAMAGE = (OSError, tarfile.TarError, EOFError, ValueError, zlib.error)  # what a shard that is not sound may raise


def read_samples(
    url: str, keys: Collection[str] | None = None, largest_bytes: int | None = None
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Key and files by suffix, in the order of the shard; where it is damaged, what came before, then the error.

    Args:
        keys: the samples to read; None reads all.
        largest_bytes: larger files are passed over.
    """
    damage: Exception | None = None
    current = ""
    files: dict[str, bytes] = {}
    found = _files(url, keys, largest_bytes)
    while True:
        try:
            key, suffix, payload = next(found)
        except StopIteration:
            break
        except DAMAGE as error:
            damage = error
            break
        if files and (key != current or suffix in files):
            yield current, files
            files = {}
        current = key
        files[suffix] = payload
    if files:
        yield current, files
    if damage is not None:
        raise damage


def samples_by_key(url: str) -> dict[str, dict[str, bytes]]:
    """All files of each key, wherever in the shard they are; open_clip takes only those side by side for one."""
    found: dict[str, dict[str, bytes]] = {}
    for key, files in read_samples(url):
        found.setdefault(key, {}).update(files)
    return found


def _files(url: str, keys: Collection[str] | None, largest_bytes: int | None) -> Iterator[tuple[str, str, bytes]]:
    """Key, suffix and payload; the files of other keys are passed over, by seeking where that can be."""
    mode: Any = "r:*" if local_path(url) is not None else "r|*"
    with (
        contextlib.closing(open_shard(url)) as stream,
        tarfile.open(fileobj=stream, mode=mode, **NAMES) as archive,
    ):
        for member in archive:
            name = _split(member)
            is_small = largest_bytes is None or member.size <= largest_bytes
            if name is not None and (keys is None or name[0] in keys) and is_small:
                payload = archive.extractfile(member)
                yield *name, b"" if payload is None else payload.read()
            archive.members = []  # type: ignore[attr-defined]  # or it would remember every header


def _split(member: tarfile.TarInfo) -> tuple[str, str] | None:
    """Key and suffix of a regular file that belongs to a sample."""
    name = split_name(member.name.encode("utf-8", "surrogateescape")) if member.isreg() else None
    if name is None:
        return None
    key, suffix = (part.decode("utf-8", "surrogateescape") for part in name)
    return key, suffix
