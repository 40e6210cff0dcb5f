"""What a snapshot or a generation holds, for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from isogclr.state.generations import Generation, find_snapshot, generation_folders, latest, load_generation
from isogclr.state.manifest import MANIFEST
from isogclr.state.snapshot import Snapshot


def describe(path: Path) -> Iterator[tuple[str, str]]:
    """Facts about the store that a path means, as (name, text). Reads all of it, a part at a time."""
    generation = _generation(path)
    if generation is not None:
        yield "generation", f"{generation.number} ({generation.path})"
        yield "kept", "yes" if generation.manifest.keep else "no"
        for name, value in generation.manifest.info.items():
            yield f"info {name}", str(value)
    found = find_snapshot(path)
    with Snapshot(found) as snapshot:
        header = snapshot.header
        yield "snapshot", str(found)
        yield "step", "none" if header.step is None else f"{header.step:,}"
        yield "rows", f"{header.rows:,}"
        yield "bytes per row", str(header.schema.row_bytes)
        yield "bytes", f"{found.stat().st_size:,} ({found.stat().st_blocks * 512:,} on disk)"
        yield "index fingerprint", header.index_fingerprint
        yield from _statistics(snapshot)


def _statistics(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Counts, and mean and range of each column, over the visited rows."""
    columns = snapshot.header.schema.state_columns
    count = visits = last_epoch = 0
    sums = np.zeros(len(columns))
    lows, highs = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
    for _, values in snapshot.visited():
        visited = values[values["visits"] > 0]
        if not len(visited):
            continue
        count += len(visited)
        visits += int(visited["visits"].sum(dtype=np.int64))
        last_epoch = max(last_epoch, int(visited["last_epoch"].max()))
        for position, name in enumerate(columns):
            column = visited[name]
            sums[position] += column.sum(dtype=np.float64)
            lows[position] = min(lows[position], column.min())
            highs[position] = max(highs[position], column.max())
    yield "rows visited", f"{count:,}"
    yield "visits", f"{visits:,}"
    yield "last epoch", str(last_epoch - 1) if last_epoch else "none"
    for position, name in enumerate(columns):
        if count:
            mean = sums[position] / count
            yield name, f"mean {mean:.6g}, from {lows[position]:.6g} to {highs[position]:.6g}"


def verify(path: Path) -> str:
    """Read every byte that belongs to the path; raises at the first that is wrong, else says what was read."""
    if (path / MANIFEST).is_file():
        return _verify_generation(load_generation(path))
    if path.is_dir() and latest(path) is not None:
        return "\n".join(_verify_generation(load_generation(folder)) for folder in generation_folders(path))
    found = find_snapshot(path)
    with Snapshot(found) as snapshot:
        snapshot.verify()
        return f"{found}: {snapshot.header.blocks:,} blocks of {snapshot.header.rows:,} rows: whole"


def _verify_generation(generation: Generation) -> str:
    generation.verify()
    return f"{generation.path}: generation {generation.number}, {len(generation.manifest.files)} files: whole"


def _generation(path: Path) -> Generation | None:
    if (path / MANIFEST).is_file():
        return load_generation(path)
    return latest(path) if path.is_dir() else None
