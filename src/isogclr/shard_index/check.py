"""Is an index whole, and does it still describe its shards?"""

from __future__ import annotations

from collections.abc import Mapping

from isogclr.errors import ShardIndexError
from isogclr.shard_index.addresses import UNKNOWN, shard_stat
from isogclr.shard_index.files import CSV, FOLDER, NO_ROWS, ROWS_HEADER_BYTES, IndexFiles, damaged, next_fingerprint
from isogclr.shard_index.pool import list_shards

_SHOWN = 3  # shards that an error names


def verify_files(files: IndexFiles) -> None:
    """Read every byte: the checksum of each segment, that segments fill their files, and the fingerprint."""
    header, tables = files.header, files.tables
    fingerprint, next_row = NO_ROWS, 0
    next_bytes = [ROWS_HEADER_BYTES] * len(files.rows)
    for segment in tables.segments:
        shard, rows, file = int(segment["shard"]), int(segment["rows"]), int(segment["file"])
        data = files.segment_bytes(segment)
        fingerprint = next_fingerprint(
            fingerprint, tables.shard_id(shard), int(tables.shards[shard]["kind"]), rows, data
        )
        if (int(segment["first_row"]), int(segment["start"])) != (next_row, next_bytes[file]):
            raise damaged(files.path / header.tables_name, "has segments that overlap or leave gaps")
        next_row += rows
        next_bytes[file] += len(data)
    expected = (header.number_of_rows, [one.bytes for one in header.rows])
    if (next_row, next_bytes) != expected or fingerprint != header.fingerprint:
        raise damaged(
            files.path, f"has {next_row:,} rows and fingerprint {fingerprint}, expected {header.fingerprint}"
        )


def check_size(files: IndexFiles, shard: int, url: str) -> None:
    """Compare sizes only: a copy has another time, and is the same shard."""
    found, _ = shard_stat(url)
    known = int(files.tables.shards[shard]["file_bytes"])
    if UNKNOWN not in (found, known) and found != known:
        unit = "pictures" if files.tables.shards[shard]["kind"] == FOLDER else "bytes"
        raise _changed([f"{url} has {found:,} {unit}, it had {known:,}"])


def reread_shards(files: IndexFiles, places: Mapping[str, int], workers: int | None, progress: bool) -> None:
    """List the shards again at the given addresses. A table is compared by its size."""
    tables = files.tables
    for url, shard in places.items():
        if tables.shards[shard]["kind"] == CSV:
            check_size(files, shard, url)
    tars = {url: shard for url, shard in places.items() if tables.shards[shard]["kind"] != CSV}
    wrong = []
    for (url, shard), listing in zip(tars.items(), list_shards(list(tars), workers, progress), strict=True):
        if listing.digest != tables.shards[shard]["digest"].tobytes():
            samples = int(tables.shards[shard]["samples"])
            wrong.append(f"{url} has other members ({len(listing.ends):,} keys, it had {samples:,})")
    if wrong:
        raise _changed(wrong)


def _changed(wrong: list[str]) -> ShardIndexError:
    more = f" and {len(wrong) - _SHOWN:,} more" if len(wrong) > _SHOWN else ""
    return ShardIndexError(
        f"shards have changed since the index was built: shard {'; shard '.join(wrong[:_SHOWN])}{more}; "
        "bring the index up to date with `isogclr index build`, old rows stay where they are"
    )
