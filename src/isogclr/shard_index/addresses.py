"""What an address of a shard means: a path or a command, a tar, a folder or a file of CIFAR; its size and time."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import urlparse

from isogclr.errors import missing_shard, unreadable_shard
from isogclr.shard_index.cifar_batches import is_batch_file
from isogclr.shard_index.class_folders import picture_names
from isogclr.shard_index.files import CIFAR, FOLDER, TAR

UNKNOWN = -1  # size and time of a shard that is no local file


def local_path(url: str) -> str | None:
    """The path that webdataset would open for this address, None if it would run a command or a handler."""
    if url == "-" or "GOPEN_REWRITE" in os.environ:
        return None
    parts = urlparse(url)
    return url if parts.scheme == "" else parts.path if parts.scheme == "file" else None


def shard_kind(url: str) -> int:
    """Everything that is neither a folder nor a file of CIFAR is a tar."""
    path = local_path(url)
    if path is None:
        return TAR
    if Path(path).is_dir():
        return FOLDER
    return CIFAR if is_batch_file(Path(path)) else TAR


def shard_stat(url: str) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds; `UNKNOWN` for what is no local file.

    The size of a folder is the number of its pictures: sizes are compared at every start, and looking at every
    file of ImageNet takes minutes on a network file system.
    """
    path = local_path(url)
    if path is None:
        return UNKNOWN, UNKNOWN
    try:
        found = os.stat(path)  # noqa: PTH116 (an address is no path until it has been opened)
        if stat.S_ISDIR(found.st_mode):
            return len(picture_names(path)), found.st_mtime_ns
    except (FileNotFoundError, NotADirectoryError):
        raise missing_shard(url) from None
    except OSError as error:
        raise unreadable_shard(url, str(error)) from error
    if not stat.S_ISREG(found.st_mode):
        return UNKNOWN, UNKNOWN
    return found.st_size, found.st_mtime_ns
