"""Files and directories that appear completely or not at all, and stay after a power cut.

Order matters: the data is on disk (fsync of the file) before the name points to it (rename), and the name is on
disk (fsync of the directory) before anybody is told. A rename without the first fsync can survive a crash as an
empty file; one without the last can be forgotten.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

Buffer = bytes | bytearray | memoryview
_FICLONE = 0x40049409  # linux/fs.h: share all extents of another file, copy on write


def write_all(descriptor: int, data: Buffer) -> None:
    """Write every byte: `os.write` may write less than it was given."""
    view = memoryview(data).cast("B")
    while len(view):
        view = view[os.write(descriptor, view) :]


def pwrite_all(descriptor: int, data: Buffer, offset: int) -> None:
    """Write every byte at a place of the file; what lies between stays a hole."""
    view = memoryview(data).cast("B")
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view = view[written:]
        offset += written


def fsync_file(path: Path) -> None:
    """Make the content of a file durable that somebody else has written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync_directory(path: Path) -> None:
    """Make the names inside a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Create a directory and those above it, as far as they are missing, and make their names durable."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        fsync_directory(folder.parent)


def write_file(path: Path, chunks: Iterable[Buffer]) -> None:
    """Create a file with the given bytes and make its content durable. It must not exist yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        for chunk in chunks:
            write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_name(path: Path) -> Path:
    """A name beside `path` that no other process uses; the prefix marks it as rubbish after a crash."""
    return path.with_name(f".partial-{path.name}-{os.getpid()}-{secrets.token_hex(4)}")


def replace_file(path: Path, chunks: Iterable[Buffer]) -> None:
    """Give `path` a new content: readers see the old one or the new one, never a part."""
    partial = temporary_name(path)
    try:
        write_file(partial, chunks)
        os.rename(partial, path)  # noqa: PTH104 (the trace of os calls is what the crash tests assert)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


def clone(source: int, target: int) -> bool:
    """Let `target` share all of `source` (XFS, btrfs, bcachefs); False where the file system can not."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def copy_file(source: Path, target: Path) -> None:
    """Give `target` the content of `source`, in a file of its own: whoever writes into one leaves the other alone.

    Readers see the old content or the new one, never a part. It takes no space where extents can be shared.
    """
    partial = temporary_name(target)
    try:
        with source.open("rb") as original, partial.open("xb") as copy:
            is_cloned = clone(original.fileno(), copy.fileno())
        if not is_cloned:
            shutil.copyfile(source, partial)
        fsync_file(partial)
        os.rename(partial, target)  # noqa: PTH104
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    fsync_directory(target.parent)


def publish_directory(partial: Path, final: Path) -> None:
    """Let a finished directory appear under its final name. Its files are durable already (`write_file`)."""
    for folder, _, _ in os.walk(partial, topdown=False):
        fsync_directory(Path(folder))
    os.rename(partial, final)  # noqa: PTH104
    fsync_directory(final.parent)
