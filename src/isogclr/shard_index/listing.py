"""List the samples of one shard: open it as webdataset would, read headers, group members into samples.

open_clip's reader carries on after damage and logs a line. So does this one: the samples in front of the damage are
listed, and a note that names the shard says what was lost. A shard that can not be opened at all is an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tarfile
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from isogclr.errors import unreadable_shard
from isogclr.shard_index.addresses import local_path, shard_stat
from isogclr.shard_index.sample_keys import ReservedSuffixError, sample_keys
from isogclr.shard_index.tar_headers import BLOCK, Members, read_ordinary_members

NAMES: Any = {"encoding": "utf-8", "errors": "surrogateescape"}  # for `tarfile`: names are bytes, kept as they are
_LARGEST = (1 << 63) - 1
_CHUNK_BYTES = 1 << 20
_COMPRESSED = (
    b"\x1f\x8b\x08",
    b"BZh",
    b"\x5d\x00\x00\x80",
    b"\xfd7zXZ",
)  # what `tarfile` recognises in a stream


@dataclass(frozen=True)
class Listing:
    """What the index needs to know of a shard, small enough to be sent between processes."""

    keys: bytes  # the distinct keys, one after the other, in the order of their first sample
    ends: npt.NDArray[np.uint32]  # where each key ends in `keys`
    digest: bytes  # of all member names and sizes: tells a shard that was moved from one that was replaced
    file_bytes: int
    modified_ns: int
    notes: tuple[str, ...]

    def key_list(self) -> list[bytes]:
        ends = self.ends.tolist()
        return [self.keys[start:end] for start, end in zip([0, *ends][:-1], ends, strict=True)]


def list_shard(url: str) -> Listing:
    """Read the headers of a shard, and only these if it is a local uncompressed file."""
    file_bytes, modified_ns = shard_stat(url)
    notes: list[str] = []
    try:
        with contextlib.closing(open_shard(url)) as stream:
            members = _read_members(stream, notes)
        keys = sample_keys(members.names, members.sizes)
    except ReservedSuffixError as error:
        raise unreadable_shard(
            url,
            f"its member {error} would replace the key or the address of its own sample; rename or remove it",
        ) from None
    except OSError as error:
        raise unreadable_shard(url, str(error)) from error
    distinct = _distinct(keys, notes)
    ends = np.cumsum([len(key) for key in distinct], dtype=np.uint64)
    if len(ends) and ends[-1] > np.iinfo(np.uint32).max:
        raise unreadable_shard(url, "its keys take more than 4 GiB; split it")
    return Listing(
        keys=b"".join(distinct),
        ends=ends.astype(np.uint32),
        digest=members_digest(members),
        file_bytes=file_bytes,
        modified_ns=modified_ns,
        notes=tuple(f"shard {url}: {note}" for note in notes),
    )


def _distinct(keys: list[bytes], notes: list[str]) -> list[bytes]:
    counts = Counter(keys)
    if len(counts) < len(keys):
        repeated = next(key for key, count in counts.items() if count > 1)
        notes.append(
            f"{len(keys) - len(counts):,} samples repeat a key of the shard, the first is {printable(repeated)}; "
            "samples with the same key share a row"
        )
    return list(counts)


def printable(key: bytes) -> str:
    return repr(key.decode("utf-8", "backslashreplace"))


def members_digest(members: Members) -> bytes:
    """Of all sizes and names."""
    try:
        sizes = array("q", members.sizes)
    except OverflowError:  # a sparse file may claim any size
        sizes = array("q", (min(size, _LARGEST) for size in members.sizes))
    digest = hashlib.blake2b(sizes.tobytes(), digest_size=16)
    digest.update(b"\0".join(members.names))
    return digest.digest()


def open_shard(url: str) -> IO[bytes]:
    """The stream that webdataset would open for this address."""
    path = local_path(url)
    if path is not None:
        return open(path, "rb", buffering=0)  # noqa: PTH123 (see above), SIM115 (the caller closes it)
    if url == "-":
        raise unreadable_shard(url, "the standard input can be read only once")
    from webdataset.gopen import gopen  # noqa: PLC0415 (imports torch; local shards do without)

    try:
        stream: IO[bytes] = gopen(url)
    except (ValueError, AssertionError) as error:  # no handler, or one that does not like the address
        raise unreadable_shard(url, str(error)) from error
    return stream


def _read_members(stream: IO[bytes], notes: list[str]) -> Members:
    """Members of a regular file by seeking, of anything else by reading it to the end."""
    file_bytes = _regular_file_bytes(stream)
    if file_bytes is None:
        members = _read_stream(stream, notes)
        while stream.read(_CHUNK_BYTES):  # a command that is cut off would report a failure
            pass
        return members
    descriptor = stream.fileno()
    if os.pread(descriptor, 6, 0).startswith(_COMPRESSED):
        return _read_stream(stream, notes)
    _forbid_read_ahead(descriptor)
    members, offset = read_ordinary_members(descriptor, file_bytes)
    if not _is_end(descriptor, offset):
        _read_file_from(stream, offset, file_bytes, members, notes)
    return members


def _regular_file_bytes(stream: IO[bytes]) -> int | None:
    try:
        found = os.fstat(stream.fileno())
    except (AttributeError, OSError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _forbid_read_ahead(descriptor: int) -> None:
    """Otherwise the kernel fetches payload from a cold disk that nobody looks at."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def _is_end(descriptor: int, offset: int) -> bool:
    return os.pread(descriptor, BLOCK, offset) == bytes(BLOCK)


def _read_file_from(stream: IO[bytes], offset: int, file_bytes: int, members: Members, notes: list[str]) -> None:
    """Let `tarfile` go on where the ordinary members end; seeks over payload too."""

    def reach(_: Any, position: int) -> bool:
        return position <= file_bytes

    stream.seek(offset)
    with _noting_damage(notes):
        archive = tarfile.open(fileobj=stream, mode="r:", **NAMES)  # noqa: SIM115 (the caller closes the stream)
        _read_archive(archive, reach, members)
        _note_unusual_end(os.pread(stream.fileno(), BLOCK, archive.offset), archive.offset, notes)


def _read_stream(stream: IO[bytes], notes: list[str]) -> Members:
    """Everything `tarfile` finds in a stream that may be compressed; the payload runs through."""

    def reach(unpacked: IO[bytes], position: int) -> bool:
        while unpacked.tell() < position:
            if not unpacked.read(min(_CHUNK_BYTES, position - unpacked.tell())):
                return False
        return True

    members = Members()
    with _noting_damage(notes):
        archive = tarfile.open(fileobj=stream, mode="r|*", **NAMES)  # noqa: SIM115 (see above)
        _read_archive(archive, reach, members)
    return members


def _read_archive(archive: tarfile.TarFile, reach: Callable[[Any, int], bool], members: Members) -> None:
    """Append the regular files whose payload is complete: `reach` says whether a byte of the archive is there.

    Without it, `tarfile` itself would run through a stream of a hostile size for years.
    """
    reached = -1
    while (member := archive.next()) is not None:
        if archive.offset <= reached or member.size < 0:
            raise tarfile.ReadError(f"the header at byte {member.offset:,} points backwards")
        reached = archive.offset
        if not reach(archive.fileobj, _payload_end(archive, member)):
            raise tarfile.ReadError(f"unexpected end of data in the member at byte {member.offset:,}")
        if member.isreg():
            members.names.append(member.name.encode("utf-8", "surrogateescape"))
            members.sizes.append(member.size)
        archive.members = []  # type: ignore[attr-defined]  # or it would remember every header


def _payload_end(archive: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    """Where the last byte of a member ends, without padding; the holes of a sparse file are not stored."""
    if not member.isreg():
        return archive.offset
    sparse: list[tuple[int, int]] | None = getattr(member, "sparse", None)
    return member.offset_data + (member.size if sparse is None else sum(count for _, count in sparse))


@contextlib.contextmanager
def _noting_damage(notes: list[str]) -> Iterator[None]:
    """open_clip's reader logs whatever `tarfile` raises and takes the next shard."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # ReadError, and ValueError or IndexError on hostile headers
        notes.append(f"{_reason(error)}; open_clip's reader stops there, and so do the samples of the index")


def _reason(error: Any) -> str:
    return str(error) or type(error).__name__


def _note_unusual_end(block: bytes, offset: int, notes: list[str]) -> None:
    """`tarfile` ends silently at a damaged header and at the end of the file."""
    if block == bytes(BLOCK):
        return
    what = "is damaged" if len(block) == BLOCK else "is cut off" if block else "and the end marker are missing"
    notes.append(
        f"the header at byte {offset:,} {what}; open_clip's reader takes it for the end, and so does the index"
    )
