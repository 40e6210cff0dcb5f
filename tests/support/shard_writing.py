"""Small shards for tests, and what open_clip's own reader makes of them."""

from __future__ import annotations

import io
import tarfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Member = tuple[str | bytes, bytes] | tarfile.TarInfo


def write_shard(path: Path, members: Iterable[Member], tar_format: int = tarfile.USTAR_FORMAT) -> Path:
    """Names may be bytes that are not UTF-8; a TarInfo is written as it is, without payload."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tar_format, encoding="utf-8", errors="surrogateescape") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, payload = member
            info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name)
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))
    return path


def pairs(keys: Iterable[str]) -> list[Member]:
    """An image and a text for each key."""
    return [member for key in keys for member in ((f"{key}.jpg", b"J" * 700), (f"{key}.txt", b"a text"))]


def write_pairs(path: Path, keys: Iterable[str], tar_format: int = tarfile.USTAR_FORMAT) -> Path:
    return write_shard(path, pairs(keys), tar_format)


def open_clip_samples(urls: Sequence[str | Path]) -> list[tuple[str, str]]:
    """(url, key) of every sample that open_clip's training pipeline reads, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside torch
        from open_clip_train.data import tarfile_to_samples_nothrow  # noqa: PLC0415 (takes seconds)

        source: list[dict[str, Any]] = [{"url": str(url)} for url in urls]
        found = [(sample["__url__"], sample["__key__"]) for sample in tarfile_to_samples_nothrow(source)]
    for one in source:
        if "stream" in one:  # the reader leaves them open
            one["stream"].close()
    return found
