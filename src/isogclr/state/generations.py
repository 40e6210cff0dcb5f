"""Joint commits: model, optimizer, data position and store appear together, or not at all.

A generation is a folder. It is filled under a temporary name; its files are made durable, then the manifest that
lists them, then the folder; only then it gets its name, and the name is made durable. Whatever moment a crash
picks, a folder with a generation's name is complete, and the one before is untouched.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isogclr.durable import (
    fsync_directory,
    fsync_file,
    make_directory,
    publish_directory,
    temporary_name,
    write_file,
)
from isogclr.errors import DamagedFileError, ForeignFileError, InputError
from isogclr.state.faults import storage_errors
from isogclr.state.layout import SNAPSHOT_MAGIC
from isogclr.state.manifest import MANIFEST, Manifest, check_length, describe_file, load_manifest, verify_file

STORE_SNAPSHOT = "state.snapshot"
_LOG = logging.getLogger(__name__)
_NAME = re.compile(r"generation-(\d{8,})")


@dataclass(frozen=True)
class Generation:
    """A committed generation."""

    path: Path
    manifest: Manifest

    @property
    def number(self) -> int:
        return self.manifest.generation

    @property
    def step(self) -> int:
        return self.manifest.step

    def verify(self) -> None:
        """Read every file and compare it with its checksum."""
        for name, entry in self.manifest.files.items():
            verify_file(self.path / name, entry)


@contextmanager
def write_generation(
    root: Path, *, step: int, keep: bool = False, info: Mapping[str, Any] | None = None
) -> Iterator[Path]:
    """Commit everything that the body of the `with` statement writes into the folder that it is given.

    The generation is durable when the statement ends. If the body or the commit fails, it leaves nothing behind.
    One process at a time may commit to a root: the one that holds the lock of the store.

    Args:
        root: folder of all generations of a run.
        step: that the files are of.
        keep: never to be pruned.
        info: small facts for whoever looks for a generation; must be JSON.
    """
    number = 1 + max((number for number, _ in _numbered(root)), default=0)
    final = root / f"generation-{number:08d}"
    partial = temporary_name(final)
    with storage_errors(final, "commit a generation"):
        try:
            make_directory(root)
            partial.mkdir()
            yield partial
            _seal(partial, number, step, keep, info or {})
            publish_directory(partial, final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _seal(folder: Path, number: int, step: int, keep: bool, info: Mapping[str, Any]) -> None:
    """Make all files durable, then the manifest that names them."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        fsync_file(path)
    files = {path.relative_to(folder).as_posix(): describe_file(path) for path in paths}
    if MANIFEST in files:
        raise InputError(f"{MANIFEST}: found a file of that name, expected it free for the manifest; rename yours")
    write_file(folder / MANIFEST, [Manifest(number, step, keep, info, files).encode()])


def load_generation(path: Path) -> Generation:
    """A generation whose manifest is whole and whose files have the right length; contents are not read."""
    manifest = load_manifest(path)
    named = _NAME.fullmatch(path.name)
    if named is not None and int(named[1]) != manifest.generation:
        raise ForeignFileError(
            f"{path}: found the manifest of generation {manifest.generation}, expected that of {int(named[1])}: "
            "the folder is a copy under another name; give it back its name, or remove it"
        )
    for name, entry in manifest.files.items():
        check_length(path / name, entry)
    return Generation(path, manifest)


def generation_folders(root: Path) -> list[Path]:
    """The folders with the name of a generation, newest first, whole or not."""
    return [path for _, path in sorted(_numbered(root), reverse=True)]


def generations(root: Path) -> list[Generation]:
    """All generations that can be loaded, newest first. One that is damaged is left out, with a warning."""
    found = []
    for path in generation_folders(root):
        try:
            found.append(load_generation(path))
        except (DamagedFileError, ForeignFileError) as error:
            _LOG.warning("left out a damaged generation: %s", error)
    return found


def latest(root: Path) -> Generation | None:
    """The newest generation with a valid manifest; None if nothing was ever committed.

    If there are generations and none can be used, that is an error: a run must not start over by itself.
    """
    problems = []
    for path in generation_folders(root):
        try:
            return load_generation(path)
        except (DamagedFileError, ForeignFileError) as error:
            _LOG.warning("passed over a damaged generation: %s", error)
            problems.append(str(error))
    if problems:
        raise DamagedFileError(
            f"{root}: found {len(problems)} generations, expected one that is whole: {'; '.join(problems)}"
        )
    return None


def prune(root: Path, *, newest: int) -> list[int]:
    """Delete old generations: all but those of the `newest` steps and those marked `keep` at their commit.

    Of one step only its newest generation counts: two of the same weights would be worth no more than one.
    A folder loses its name before its files go, so that a crash in between leaves no generation with missing files.
    Damaged generations are left for somebody to look at. Returns the numbers of those deleted.
    """
    if newest < 1:
        raise InputError(f"newest: found {newest}, expected at least 1; the last commit is never deleted")
    deleted = []
    spared: set[int] = set()
    for generation in generations(root):
        is_spared = generation.step not in spared and len(spared) < newest
        spared |= {generation.step} if is_spared else set()
        if not is_spared and not generation.manifest.keep:
            with storage_errors(generation.path, "delete an old generation"):
                doomed = root / f".deleted-{generation.path.name}-{os.getpid()}"
                os.rename(generation.path, doomed)  # noqa: PTH104 (the crash tests trace os calls)
                fsync_directory(root)
                shutil.rmtree(doomed)
            deleted.append(generation.number)
    return deleted


def remove_leftovers(root: Path) -> list[Path]:
    """Delete what a crash has left of commits and deletions. For the process that holds the lock of the store."""
    leftovers = [*root.glob(".partial-generation-*"), *root.glob(".deleted-generation-*")]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return leftovers


def find_snapshot(path: Path) -> Path:
    """The store snapshot that a path means: itself, that of a generation, or that of the latest in a folder."""
    if path.is_file():
        return path
    if (path / MANIFEST).is_file():
        return _snapshot_of(load_generation(path))
    generation = latest(path) if path.is_dir() else None
    if generation is None:
        raise ForeignFileError(
            f"{path}: found neither a snapshot nor a generation, expected one; name a file that begins with "
            f"{SNAPSHOT_MAGIC.decode()}, a folder with a {MANIFEST}, or a folder of generations"
        )
    return _snapshot_of(generation)


def _snapshot_of(generation: Generation) -> Path:
    for name, entry in generation.manifest.files.items():
        if entry.kind == "snapshot":
            return generation.path / name
    raise ForeignFileError(
        f"{generation.path}: found no store snapshot among {sorted(generation.manifest.files)}, expected one; "
        "choose a generation of a run with a state store"
    )


def _numbered(root: Path) -> Iterator[tuple[int, Path]]:
    if root.is_dir():
        for path in root.iterdir():
            if match := _NAME.fullmatch(path.name):
                yield int(match[1]), path
