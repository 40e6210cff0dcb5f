"""The state store against an array in RAM, on the path of a training step, and its cost as it grows.

One step is `read` + `write` of 4,096 random rows. Both sides take turns in one loop, so that a disturbance from
outside hits both. Between two steps there is a pause in place of the model, the same for both, or none at all. The
live file is on a disk or in shared memory; the array uses `np.take` and `np.put`, about eight times faster than
indexing a structured array.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from isogclr.state.schema import schema_for
from isogclr.state.store import StateStore

ISOGCLR = schema_for(
    [f"{side}_{name}" for side in ("image", "text") for name in ("temperature", "log_mean", "momentum")]
)
ROWS = 100_000_000
BATCH = 4096
REPETITIONS = 5
STEPS = 300
PAUSE_SECONDS = 0.005
SHARED_MEMORY = "/dev/shm"
GROWTH = (1_000_000, 10_000_000, 100_000_000)
FILL_ROWS = 1_000_000
_WRITE_BACK = """
import os, sys
live = os.open(sys.argv[1], os.O_RDWR)
bulk = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT)
data = os.urandom(1 << 22)
while True:
    for part in range(16):
        os.pwrite(bulk, data, part << 22)
    os.fsync(bulk)
    os.fsync(live)
    os.write(1, b".")
"""


def run(rows: int = ROWS, repetitions: int = REPETITIONS, steps: int = STEPS) -> dict[str, Any]:
    """All measurements; goals are p50 <= 3 (quiet) and p99 <= 5 (heavy write-back)."""
    array = ISOGCLR.zeros(rows)
    array["visits"] = 1  # every page exists
    with tempfile.TemporaryDirectory(prefix="isogclr-bench-", dir=os.environ.get("BENCH_DIR")) as folder:
        on_disk, forced, waited = _on_disk(Path(folder), array, repetitions, steps)
        with tempfile.TemporaryDirectory(prefix="isogclr-bench-", dir=SHARED_MEMORY) as shared:
            in_memory = _on_nothing_else(Path(shared) / "live", array, repetitions, steps)
        del array
        growth = [_growth(Path(folder), count) for count in GROWTH if count <= rows]
    return {
        "rows": rows,
        "batch": BATCH,
        "pause_seconds": PAUSE_SECONDS,
        "steps": steps,
        "comparisons": on_disk | in_memory,
        "write_back_rounds_per_second": forced,
        "waited_seconds": waited,
        "growth": growth,
    }


def _on_disk(
    folder: Path, array: Any, repetitions: int, steps: int
) -> tuple[dict[str, dict[str, Any]], float, float]:
    path = folder / "live"
    with StateStore.create(path, ISOGCLR, len(array), "benchmark") as store:
        _fill(store)
        os.sync()  # what filling has left to write is not the step's
        quiet = _repeat(store, array, repetitions, steps, PAUSE_SECONDS)
        back_to_back = _repeat(store, array, repetitions, steps, 0.0)
        waited_before = store.wait_seconds
        with _write_back(path) as forced:
            busy = _repeat(store, array, repetitions, steps, PAUSE_SECONDS)
        waited = store.wait_seconds - waited_before
    path.unlink()
    pause = f"{PAUSE_SECONDS * 1e3:g} ms between steps"
    found = {
        f"disk, {pause}": _summary(quiet, "p50", 3.0),
        f"disk, heavy write-back, {pause}": _summary(busy, "p99", 5.0),
        "disk, back to back": _summary(back_to_back, "p50", 3.0),
    }
    return found, forced["rounds_per_second"], waited


def _on_nothing_else(path: Path, array: Any, repetitions: int, steps: int) -> dict[str, dict[str, Any]]:
    with StateStore.create(path, ISOGCLR, len(array), "benchmark") as store:
        _fill(store)
        found = _repeat(store, array, repetitions, steps, 0.0)
    return {
        "shared memory, back to back": _summary(found, "p50", 3.0),
        "shared memory, back to back, p99": _summary(found, "p99", 5.0),
    }


def _repeat(store: StateStore, array: Any, repetitions: int, steps: int, pause: float) -> list[dict[str, float]]:
    return [_compare(store, array, seed, steps, pause) for seed in range(repetitions)]


def _fill(store: StateStore) -> None:
    """Visit every row once, so that no page is missing."""
    values = store.schema.zeros(FILL_ROWS)
    values["visits"] = 1
    for step, first in enumerate(range(0, store.rows, FILL_ROWS)):
        rows = np.arange(first, min(first + FILL_ROWS, store.rows))
        store.write(rows, values[: len(rows)], step)
    store.drain()


def _compare(store: StateStore, array: Any, seed: int, steps: int, pause: float) -> dict[str, float]:
    """Quantiles of one repetition, in microseconds."""
    random = np.random.default_rng(seed)
    times = np.empty((2, steps))
    for step in range(steps):
        for side, turn in enumerate((_array_step, _store_step)):
            rows = random.integers(0, store.rows, BATCH)
            if pause:
                time.sleep(pause)
            start = time.perf_counter()
            turn(array if side == 0 else store, rows)
            times[side, step] = time.perf_counter() - start
    store.drain()
    quantiles = np.quantile(times * 1e6, (0.5, 0.99), axis=1).tolist()
    return {
        "array_p50": quantiles[0][0],
        "store_p50": quantiles[0][1],
        "array_p99": quantiles[1][0],
        "store_p99": quantiles[1][1],
        "ratio_p50": quantiles[0][1] / quantiles[0][0],
        "ratio_p99": quantiles[1][1] / quantiles[1][0],
    }


def _array_step(array: Any, rows: Any) -> None:
    values = np.take(array, rows, mode="clip")
    np.put(array, rows, values, mode="clip")


def _store_step(store: StateStore, rows: Any) -> None:
    values = store.read(rows)
    store.write(rows, values, (store.newest_step or 0) + 1)


def _summary(repetitions: list[dict[str, float]], quantile: str, goal: float) -> dict[str, Any]:
    ratios = measure.spread([repetition[f"ratio_{quantile}"] for repetition in repetitions])
    return {
        "quantile": quantile,
        "goal": goal,
        "ratio": ratios,
        "met": bool(ratios["median"] <= goal),
        "microseconds": {
            side: measure.spread([repetition[f"{side}_{quantile}"] for repetition in repetitions])
            for side in ("array", "store")
        },
        "repetitions": repetitions,
    }


def table(results: dict[str, Any]) -> str:
    """Both comparisons, then the growth."""
    lines = [
        f"{results['batch']:,} random rows of {results['rows']:,}, read and written, against an array in RAM:",
        "",
        "| | ratio: median (lowest to highest) | goal | store | array |",
        "|---|---|---|---|---|",
    ]
    for name, part in results["comparisons"].items():
        ratio, times = part["ratio"], part["microseconds"]
        lines.append(
            f"| {name.removesuffix(', p99')}: {part['quantile']} | {ratio['median']:.2f} ({ratio['min']:.2f} to "
            f"{ratio['max']:.2f}) | ≤ {part['goal']:g} | {times['store']['median']:.0f} µs | "
            f"{times['array']['median']:.0f} µs |"
        )
    lines += [
        "",
        f"Write-back: {results['write_back_rounds_per_second']:.1f} times per second 64 MiB and all of the live "
        f"file to disk. Waited {results['waited_seconds']:.3f} s for the writer, a drain per repetition included.",
        "",
        "| rows | create | open | read | write | snapshot | restore | live on disk | snapshot on disk |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['rows']:,} | {row['create_ms']:.1f} ms | {row['open_ms']:.1f} ms | {row['read_us']:.0f} µs | "
        f"{row['write_us']:.0f} µs | {row['snapshot_s']:.2f} s | {row['restore_s']:.2f} s | "
        f"{row['live_bytes_on_disk'] / 1e6:,.1f} MB | {row['snapshot_bytes_on_disk'] / 1e6:,.1f} MB |"
        for row in results["growth"]
    ]
    return "\n".join(lines)


@contextmanager
def _write_back(live: Path) -> Iterator[dict[str, float]]:
    """Another process that forces 64 MiB and the live file to disk, for ever; yields how often a second."""
    command = [sys.executable, "-c", _WRITE_BACK, str(live), str(live.with_name("bulk"))]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    rate: dict[str, float] = {}
    start = time.perf_counter()
    try:
        time.sleep(1.0)
        yield rate
    finally:
        process.kill()
        rounds = process.communicate()[0]
        rate["rounds_per_second"] = len(rounds) / (time.perf_counter() - start)


def _growth(folder: Path, rows: int) -> dict[str, float]:
    """What one store of this size costs, all rows visited."""
    path, snapshot = folder / f"live-{rows}", folder / f"snapshot-{rows}"
    result: dict[str, float] = {"rows": rows}
    start = time.perf_counter()
    store = StateStore.create(path, ISOGCLR, rows, "benchmark")
    result["create_ms"] = (time.perf_counter() - start) * 1e3
    _fill(store)
    result.update(_steps(store))
    start = time.perf_counter()
    StateStore.open(path, "benchmark").close()
    result["open_ms"] = (time.perf_counter() - start) * 1e3
    start = time.perf_counter()
    store.commit(snapshot)
    result["snapshot_s"] = time.perf_counter() - start
    result["live_bytes_on_disk"] = path.stat().st_blocks * 512
    result["snapshot_bytes_on_disk"] = snapshot.stat().st_blocks * 512
    store.close()
    path.unlink()
    start = time.perf_counter()
    StateStore.restore(path, snapshot, ISOGCLR, rows, "benchmark").close()
    result["restore_s"] = time.perf_counter() - start
    path.unlink()
    snapshot.unlink()
    return result


def _steps(store: StateStore) -> dict[str, float]:
    random = np.random.default_rng(0)
    times = np.empty((2, 200))
    for step in range(200):
        rows = random.integers(0, store.rows, BATCH)
        time.sleep(PAUSE_SECONDS)
        marks = [time.perf_counter()]
        values = store.read(rows)
        marks.append(time.perf_counter())
        store.write(rows, values, (store.newest_step or 0) + 1)
        marks.append(time.perf_counter())
        times[:, step] = np.diff(marks)
    medians = np.median(times * 1e6, axis=1)
    return {"read_us": float(medians[0]), "write_us": float(medians[1])}


if __name__ == "__main__":
    measured = run()
    print(table(measured))
    print(f"\nwritten to {measure.save('store', measured)}")
