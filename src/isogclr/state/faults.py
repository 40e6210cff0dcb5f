"""What the operating system refuses, in words that help."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isogclr.errors import StorageFullError, StoreError


def is_full_disk(error: BaseException | None) -> bool:
    """Whether the operating system has refused a write for want of room, on the disk or in somebody's quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def storage_errors(path: Path, action: str) -> Iterator[None]:
    """Turn an OSError of a write to `path` into one of ours. `action` completes "could not …"."""
    try:
        yield
    except OSError as error:
        if is_full_disk(error):
            raise full_disk(path, action) from error
        raise StoreError(
            f"{path}: could not {action}: {error.strerror or error}; expected a file system that takes writes; "
            "what was committed before is intact: check the disk, then resume from the latest generation"
        ) from error


def full_disk(path: Path, action: str) -> StorageFullError:
    """The error of a full disk, with what is left on it and what may go."""
    folder = path if path.is_dir() else path.parent
    free = shutil.disk_usage(folder).free if folder.exists() else 0
    return StorageFullError(
        f"{path}: could not {action}: the disk is full ({free:,} bytes free); expected room for it; what was "
        "committed before is intact: free space (older generations first, then folders named .partial-* or "
        ".deleted-*), then resume from the latest generation"
    )
