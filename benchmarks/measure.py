"""Measuring on a noisy machine: contenders take turns, and only ratios within a turn are reported."""

from __future__ import annotations

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def ratios_to(baseline: str, contenders: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, dict]:
    """Time each contender once a round; its ratio to the baseline of the same round: median, smallest, largest.

    The first round warms up and is not counted.
    """
    rounds: list[dict[str, float]] = []
    for _ in range(repetitions + 1):
        seconds = {}
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name] = time.perf_counter() - start
        rounds.append(seconds)
    return {name: spread([r[name] / r[baseline] for r in rounds[1:]]) for name in contenders}


def spread(values: list[float]) -> dict:
    """Median and range of repeated measurements."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def peak_bytes(prepare: Callable[[], Callable[[], object]], preload: str) -> int:
    """Largest growth of the resident set while `prepare()()` runs once, in a process of its own.

    `prepare` is not counted: it makes the inputs and touches what is loaded once. The process comes from a server
    that has only imported `preload`, so that no freed memory of an earlier measurement is used again unseen.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([preload])
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_peak_bytes, args=(prepare, sender))
    process.start()
    growth = receiver.recv()
    process.join()
    return int(growth)


def _peak_bytes(prepare: Callable[[], Callable[[], object]], sender: Connection) -> None:
    run = prepare()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the high-water mark
    before = _status_bytes("VmRSS")
    run()
    sender.send(_status_bytes("VmHWM") - before)


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def save(name: str, results: dict) -> Path:
    """Write results as JSON beside the benchmarks."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return path
