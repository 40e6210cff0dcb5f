"""List the samples of a shard of any kind: a tar, a folder of pictures, a file of CIFAR."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isogclr.errors import unreadable_shard
from isogclr.shard_index.addresses import local_path, shard_kind, shard_stat
from isogclr.shard_index.cifar_batches import read_batch
from isogclr.shard_index.class_folders import picture_names, picture_sizes
from isogclr.shard_index.files import FOLDER, TAR
from isogclr.shard_index.listing import Listing, list_shard, members_digest
from isogclr.shard_index.tar_headers import Members


def list_samples(url: str) -> Listing:
    """Whatever is at this address."""
    kind = shard_kind(url)
    if kind == TAR:
        return list_shard(url)
    path = local_path(url)
    assert path is not None
    return _list_folder(url, path) if kind == FOLDER else _list_batch(url, path)


def _list_folder(url: str, path: str) -> Listing:
    """Keys are the names of the files; names and sizes tell a folder that was moved from one that was replaced."""
    try:
        names = picture_names(path)
        sizes = picture_sizes(path, names)
    except OSError as error:
        raise unreadable_shard(url, str(error)) from error
    keys = [os.fsencode(name) for name in names]
    return _listing(url, keys, members_digest(Members(keys, sizes)))


def _list_batch(url: str, path: str) -> Listing:
    """Keys are positions: the file names inside repeat. Pixels and labels are what it is known by."""
    batch = read_batch(Path(path))
    return _listing(url, [str(place).encode() for place in range(len(batch.labels))], batch.digest())


def _listing(url: str, keys: Sequence[bytes], digest: bytes) -> Listing:
    ends = np.cumsum([len(key) for key in keys], dtype=np.uint32)
    return Listing(b"".join(keys), ends, digest, *shard_stat(url), notes=())
