"""One training run per store: a lock that the kernel releases when its process ends, however it ends.

The lock is a POSIX record lock on a file beside the live file. Such locks belong to the process: data workers that
were forked do not inherit it and can not keep it alive, and a pid that was given to another process can not hold
it. So nothing has to be guessed about stale locks; the file's text only says who it is, for the message. The file
is never deleted, since two processes could then lock two files of one name.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from isogclr.errors import StoreLockedError
from isogclr.state.filesystem import network_file_system

_LOG = logging.getLogger(__name__)
_FLOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_held: dict[tuple[int, int], int] = {}  # (device, inode) -> pid; a process can not see its own record locks


@dataclass(frozen=True)
class Holder:
    """Who has or had the lock; `started` is the process start time in clock ticks since boot."""

    pid: int | None
    host: str | None
    started: int | None = None


class StoreLock:
    """A lock that is held until `release` or the end of the process.

    Args:
        path: of the lock file; created if missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.took_over: Holder | None = None
        if _is_ours(path):  # before it is opened: closing any descriptor of the file would drop our lock
            raise _locked(path, Holder(os.getpid(), socket.gethostname()))
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        self._key = _key(os.fstat(self._descriptor))
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            other = _query(self._descriptor) or _recorded(self._descriptor) or Holder(None, None)
            os.close(self._descriptor)
            raise _locked(path, other) from None
        self._take_over()
        _held[self._key] = os.getpid()
        try:
            _record(self._descriptor, Holder(os.getpid(), socket.gethostname(), _start_time()))
        except OSError:
            del _held[self._key]
            os.close(self._descriptor)
            raise

    def _take_over(self) -> None:
        """The kernel gave us the lock; a text that is still there is of a run that ended without releasing it."""
        self.took_over = _recorded(self._descriptor)
        if self.took_over is None:
            return
        if self.took_over.host != socket.gethostname() and network_file_system(self.path) is not None:
            os.close(self._descriptor)
            raise _locked(self.path, self.took_over)  # locks do not reach over every network file system
        _LOG.warning(
            "%s: stale lock of pid %s on %s, which ended without releasing it: taken over",
            self.path,
            self.took_over.pid,
            self.took_over.host,
        )

    def release(self) -> None:
        """Give the lock back; in a forked child, which does not have it, do nothing."""
        if _held.get(self._key) == os.getpid():
            del _held[self._key]
            with suppress(OSError):  # a text that stays costs the next run a warning, no more
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)


def lock_path(path: Path) -> Path:
    """The lock file of a live file."""
    return path.with_name(path.name + ".lock")


def lock_holder(path: Path) -> Holder | None:
    """Who holds the lock now; None if nobody does, or if there is no such lock."""
    if _is_ours(path):
        return Holder(os.getpid(), socket.gethostname())
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        return _query(descriptor)
    finally:
        os.close(descriptor)


def _is_ours(path: Path) -> bool:
    return path.exists() and _held.get(_key(path.stat())) == os.getpid()


def _query(descriptor: int) -> Holder | None:
    """Ask the kernel who holds the lock. It knows no pid of another machine or container: the text does."""
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, request))
    if kind == fcntl.F_UNLCK:
        return None
    recorded = _recorded(descriptor) or Holder(None, None)
    return Holder(pid if pid > 0 else recorded.pid, recorded.host, recorded.started)


def _recorded(descriptor: int) -> Holder | None:
    text = os.pread(descriptor, 4096, 0)
    if not text:
        return None
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):
        return Holder(None, None)  # cut short by a crash: somebody was here


def _record(descriptor: int, holder: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(asdict(holder)).encode("ascii"), 0)


def _start_time() -> int | None:
    try:
        return int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    except (OSError, ValueError):
        return None


def _key(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _locked(path: Path, holder: Holder) -> StoreLockedError:
    return StoreLockedError(
        f"{path}: found the lock of pid {holder.pid} on {holder.host}, expected that no other training run uses "
        "this store; give this run a state directory or a name of its own, or end that process (if it runs on "
        "another machine and is known to have ended, delete the lock file)",
        holder.pid,
        holder.host,
    )
