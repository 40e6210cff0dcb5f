"""Build a shard index, or extend one.

Rows are given out once and never move: a known shard that was not touched is not read; new keys of a changed shard
and the keys of new shards get rows at the end; keys that vanished keep theirs. Changed shards come first, new ones
follow in the order of the sources.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from isogclr.csv_table import CsvColumns
from isogclr.durable import make_directory
from isogclr.errors import IndexNotFoundError, InputError, ShardIndexError, ShardWarning
from isogclr.shard_index.addresses import shard_kind, shard_stat
from isogclr.shard_index.files import CSV, HEADER_NAME, LOCK_NAME, is_ours, remove_leftovers
from isogclr.shard_index.ids import assign_ids, components
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.patterns import DatasetType, csv_digests, is_csv
from isogclr.shard_index.picture_layouts import picture_shards
from isogclr.shard_index.plan import KnownShard, ListShards, Plan, find_known, plan_shards
from isogclr.shard_index.pool import list_shards
from isogclr.shard_index.saving import IndexWriter, ShardRecord


@dataclass(frozen=True)
class BuildSummary:
    """What a build found, for the user to compare with what he expected."""

    new_shards: int
    changed_shards: int
    moved_shards: int
    known_shards: int
    absent_shards: int
    new_rows: int
    number_of_rows: int


def build_index(
    sources: str | Sequence[str],
    path: str | os.PathLike[str],
    *,
    workers: int | None = None,
    progress: bool = False,
    dataset_type: DatasetType = "auto",
    csv_columns: CsvColumns | None = None,
    reread: bool = False,
) -> BuildSummary:
    """Bring the index at `path` up to date with the sources; create it if there is none.

    Local shards are read again when their size or time has changed, all others only with `reread`. Shards that the
    index knows and the sources do not name keep their rows.
    """
    folder = Path(path)
    with _only_builder(folder):
        old = _old_index(folder)
        writer = IndexWriter(folder, old)
        if is_csv(sources, dataset_type):
            if not isinstance(sources, str):
                raise InputError("sources: a table is one file, as for open_clip; pass its path")
            plan, segments = _plan_csv(writer, sources, csv_columns or CsvColumns())
        else:
            listing = partial(list_shards, workers=workers, progress=progress)
            plan = plan_shards(_distinct(picture_shards(sources)), old, reread, listing)
            segments = _read_planned(writer, plan, listing)
        _refuse_foreign(folder, old, plan)
        _enter(writer, plan, is_table=is_csv(sources, dataset_type))
        writer.write(segments)
    for note in (*plan.notes, *writer.notes):
        warnings.warn(note, ShardWarning, stacklevel=2)
    first_row = old.number_of_rows if old else 0
    return BuildSummary(
        new_shards=len(plan.new),
        changed_shards=len(plan.changed),
        moved_shards=sum(one.moved for one in plan.known),
        known_shards=len(plan.known),
        absent_shards=sum(not record.present for record in writer.shards),
        new_rows=writer.header.number_of_rows - first_row,
        number_of_rows=writer.header.number_of_rows,
    )


def _distinct(urls: Sequence[str]) -> list[str]:
    """A shard may be named several times, to be drawn more often."""
    if not urls:
        raise InputError("sources: there are none; expected at least one shard")
    first: dict[tuple[str, ...], str] = {}
    for url in urls:
        first.setdefault(components(url), url)
    return list(first.values())


@contextlib.contextmanager
def _only_builder(folder: Path) -> Iterator[None]:
    """Hold the lock of an index, and say plainly when the disk fails."""
    try:
        make_directory(folder)
        is_new = not (folder / HEADER_NAME).exists()
        stray = next((file.name for file in folder.iterdir() if not is_ours(file.name)), None)
        if stray is not None and is_new:
            raise ShardIndexError(f"{folder} holds {stray}, which is no part of an index: choose another directory")
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ShardIndexError(f"another process is building {folder}: wait for it, or stop it") from None
            yield
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ShardIndexError(
            f"the index at {folder} can not be written ({error}): it is the old index or the new one, "
            "never a part; make room or mend the disk, and build again"
        ) from error


def _old_index(folder: Path) -> ShardIndex | None:
    try:
        old = ShardIndex.load(folder)
    except IndexNotFoundError:
        remove_leftovers(folder, None)
        return None
    remove_leftovers(folder, old.files.header)
    return old


def _refuse_foreign(folder: Path, old: ShardIndex | None, plan: Plan) -> None:
    if old is not None and old.number_of_shards and not plan.known:
        raise ShardIndexError(
            f"{folder} is the index of another data set: it holds {old.number_of_shards:,} shards like "
            f"{old.files.tables.url(0)}, and none of the sources like {plan.new[0]}. To add shards, name the old "
            "and the new ones (old::new); for another data set choose another directory"
        )


def _enter(writer: IndexWriter, plan: Plan, is_table: bool) -> None:
    """Put the shards of the plan into the table, new ones with their ids."""
    for one in plan.known:
        record = writer.shards[one.shard]
        record.url, record.present = one.url, True
        if one.shard not in plan.changed:
            record.file_bytes, record.modified_ns = one.file_bytes, one.modified_ns
    ids = assign_ids(plan.new, [(record.id, record.url) for record in writer.shards])
    writer.shards.extend(
        ShardRecord(identity, url, CSV if is_table else shard_kind(url), present=True)
        for identity, url in zip(ids, plan.new, strict=True)
    )


def _read_planned(writer: IndexWriter, plan: Plan, listing: ListShards) -> Iterator[bytes]:
    """List changed and new shards, and yield the bytes of their new rows."""
    changed = {one.url: one.shard for one in plan.known if one.shard in plan.changed}
    first_new = len(writer.shards) - len(plan.new)  # runs after the new shards were entered
    numbers = [*changed.values(), *range(first_new, len(writer.shards))]
    for shard, found in zip(numbers, listing([*changed, *plan.new]), strict=True):
        writer.notes.extend(found.notes)
        data = writer.add_listing(shard, found)
        if data is not None:
            yield data


def _plan_csv(writer: IndexWriter, url: str, columns: CsvColumns) -> tuple[Plan, Iterator[bytes]]:
    """A table is a shard whose keys are positions. It may grow at its end; nothing else keeps positions."""
    old = writer.old
    known = find_known(url, old) if old else None
    before = len(old.shard_rows(known)) if old and known is not None else 0
    rows, digest, (prefix,) = csv_digests(url, columns, [before])
    stat = shard_stat(url)
    plan = Plan(new=[url])
    if old and known is not None:
        if old.files.tables.shards[known]["kind"] != CSV:
            raise ShardIndexError(
                f"{url} is a shard in this index, and is now to be read as a table: check --dataset-type, or "
                "choose another directory for the index"
            )
        if prefix != old.files.tables.shards[known]["digest"].tobytes():
            raise ShardIndexError(
                f"the first {before:,} rows of {url} are not those that the index was built from (now {rows:,}): "
                "samples of a table are known by position, so rows may only be added at its end; "
                "for a table that was sorted or cut, build a new index and start a new state"
            )
        plan = Plan(known=[KnownShard(known, url, *stat)])
    return plan, _csv_segments(writer, url, (before, rows), digest, stat)


def _csv_segments(
    writer: IndexWriter, url: str, grown: tuple[int, int], digest: bytes, stat: tuple[int, int]
) -> Iterator[bytes]:
    shard = next(number for number, record in enumerate(writer.shards) if record.url == url)
    record = writer.shards[shard]
    before, rows = grown
    record.samples, record.digest = rows, digest
    record.file_bytes, record.modified_ns = stat
    if rows > before:
        yield writer.add_rows(shard, rows - before)
