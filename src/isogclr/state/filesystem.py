"""Which file system a path is on, to warn about those that a mapping must not cross."""

from __future__ import annotations

import logging
import re
from pathlib import Path

_LOG = logging.getLogger(__name__)
_MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = {
    *("9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
    *("ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs"),
}


def file_system(path: Path) -> str | None:
    """The type of the file system, as /proc/self/mountinfo names it; None where there is no such thing."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    target = path.resolve()
    depth, kind = -1, None
    for line in mounts:
        fields, _, source = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split()[4]))
        if target.is_relative_to(point) and len(point.parts) >= depth:  # a later mount hides an earlier one
            depth, kind = len(point.parts), source.split()[0]
    return kind


def network_file_system(path: Path) -> str | None:
    """The type of the file system if other machines may hold the file too; None if it is local or not known."""
    kind = file_system(path) or ""
    return kind if kind in _NETWORK or kind == "fuse" or kind.startswith("fuse.") else None


def reading_allocates(path: Path) -> bool:
    """Whether reading a hole through a mapping takes a page of the file system, as it does in shared memory."""
    return file_system(path) in ("tmpfs", "ramfs", None)


def writing_allocates(path: Path) -> bool:
    """Whether writing to a page that exists takes a new one, as copy on write does."""
    return file_system(path) in ("bcachefs", "btrfs", "nilfs2", "zfs", None)


def warn_if_network(path: Path) -> None:
    """A mapping over a network is slow, and two nodes that map one file overwrite each other."""
    kind = network_file_system(path)
    if kind is not None:
        _LOG.warning(
            "%s: the state store is on a network file system (%s); expected a local disk or /dev/shm: reads will "
            "stall, and two nodes must never share the file; choose a local directory, such as $TMPDIR",
            path,
            kind,
        )
