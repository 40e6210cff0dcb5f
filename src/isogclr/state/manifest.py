"""The manifest of a generation: which files belong to it, how long they are, and their checksums.

The last bytes of the file are the CRC-32 of all bytes before them, so every flipped byte is found although the
whole is one JSON object. A snapshot of the store has one checksum per block inside; the manifest holds the checksum
of its header and table only, which fixes the rest and spares a second pass over the rows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isogclr.errors import DamagedFileError, ForeignFileError, NewerVersionError, TruncatedFileError
from isogclr.state.layout import SNAPSHOT_MAGIC
from isogclr.state.snapshot import Snapshot

MANIFEST = "manifest.json"
FORMAT = "isogclr-generation"
VERSION = 1
_OPENING = b'{"content":'
_CLOSING_LENGTH = len(b',"crc32":"00000000"}\n')
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True)
class FileEntry:
    """Length and checksum of one file; `kind` is "file" (all bytes) or "snapshot" (header page, then table)."""

    kind: str
    bytes: int
    crc32: str


@dataclass(frozen=True)
class Manifest:
    """What a generation consists of.

    Args:
        generation: its number; a later commit has a higher one.
        step: the step that all its files are of.
        keep: never pruned.
        info: whatever the caller wants to know before it opens the files.
        files: by name, relative to the folder, with `/` between parts.
    """

    generation: int
    step: int
    keep: bool
    info: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, FileEntry] = field(default_factory=dict)

    def encode(self) -> bytes:
        content = {
            "files": {name: vars(entry) for name, entry in self.files.items()},
            "format": FORMAT,
            "generation": self.generation,
            "info": dict(self.info),
            "keep": self.keep,
            "step": self.step,
            "version": VERSION,
        }
        body = _OPENING + json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
        return body + _closing(body)


def _closing(body: bytes) -> bytes:
    return b',"crc32":"%08x"}\n' % zlib.crc32(body)


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a folder; raises a typed error unless it is whole."""
    path = folder / MANIFEST
    if not path.is_file():
        raise ForeignFileError(
            f"{folder}: found no {MANIFEST}, expected one: this is no generation, or it was never committed; "
            "choose another folder"
        )
    data = path.read_bytes()
    body, closing = data[:-_CLOSING_LENGTH], data[-_CLOSING_LENGTH:]
    if len(data) <= _CLOSING_LENGTH or closing != _closing(body):
        raise DamagedFileError(
            f"{path}: found {closing!r} at its end, expected the checksum {_closing(body)!r}: the manifest is "
            "damaged or cut short; use another generation, and check the disk"
        )
    try:
        return _parse(json.loads(data)["content"], path)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedFileError(
            f"{path}: the checksum is right but the content is not ({error!r}), expected what docs/store_format.md "
            "says; use another generation"
        ) from error


def _parse(content: dict[str, Any], path: Path) -> Manifest:
    if content["format"] != FORMAT:
        raise ForeignFileError(f"{path}: found format {content['format']!r}, expected {FORMAT!r}; check the path")
    if content["version"] > VERSION:
        raise NewerVersionError(
            f"{path}: found version {content['version']} of the format, expected at most {VERSION}: it was written "
            "by a newer isogclr; install that release"
        )
    files = {name: FileEntry(**entry) for name, entry in content["files"].items()}
    return Manifest(content["generation"], content["step"], content["keep"], content["info"], files)


def describe_file(path: Path) -> FileEntry:
    """The entry of a file that is complete."""
    with path.open("rb") as file:
        if file.read(len(SNAPSHOT_MAGIC)) == SNAPSHOT_MAGIC:
            with Snapshot(path) as snapshot:
                return FileEntry("snapshot", path.stat().st_size, f"{snapshot.root_checksum:08x}")
        file.seek(0)
        checksum = 0
        while chunk := file.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
    return FileEntry("file", path.stat().st_size, f"{checksum:08x}")


def check_length(path: Path, entry: FileEntry) -> None:
    """The file is there and as long as the manifest says."""
    found = path.stat().st_size if path.is_file() else None
    if found != entry.bytes:
        raise TruncatedFileError(
            f"{path}: found {'no file' if found is None else f'{found} bytes'}, expected {entry.bytes} bytes by "
            "the manifest; use another generation, and check the disk"
        )


def verify_file(path: Path, entry: FileEntry) -> None:
    """Every byte of the file is what the manifest says."""
    check_length(path, entry)
    found = describe_file(path)
    if found != entry:
        raise DamagedFileError(
            f"{path}: found checksum {found.crc32} of a {found.kind}, expected {entry.crc32} of a {entry.kind}: "
            "the file is damaged; use another generation, and check the disk"
        )
    if entry.kind == "snapshot":
        with Snapshot(path) as snapshot:
            snapshot.verify()
