"""The shard index: how fast it is built and asked, what it reads, and what it keeps in memory.

    python -m benchmarks.index

Speed is a ratio to webdataset going through the same shards without decoding, measured alternately in one run.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import tarfile
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from isogclr.shard_index.build import build_index
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.listing import Listing, list_shard
from isogclr.shard_index.saving import IndexWriter, ShardRecord

REPETITIONS = 7
SHARDS, SAMPLES_PER_SHARD, IMAGE_BYTES, TEXT_BYTES = 12, 2500, 20_000 - 200, 200
COPIES = 16
LARGE_SHARDS, LARGE_SAMPLES_PER_SHARD = 1000, 10_000
FORMATS = {"ustar": tarfile.USTAR_FORMAT, "pax": tarfile.PAX_FORMAT}


def run() -> dict[str, Any]:
    """All results as plain numbers and strings."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        results: dict[str, Any] = {}
        for name, tar_format in FORMATS.items():
            urls = [write_shard(root / name / f"{shard:05d}.tar", shard, tar_format) for shard in range(SHARDS)]
            results[f"build, {name}"] = build_against_webdataset(urls, root)
            results[f"header bytes, {name}"] = header_bytes(urls[0], blocks_per_member=3 if name == "pax" else 1)
        results["two processes, pax"] = two_processes(urls, root)
        results["lookup"] = lookup(urls, root)
        results["10 million samples"] = ten_million(root)
    return results


def write_shard(path: Path, shard: int, tar_format: int) -> str:
    """20 kB a sample, an image and a short text. A time with a fraction puts a pax header before every file."""
    path.parent.mkdir(exist_ok=True)
    payload = np.random.default_rng(shard).bytes(IMAGE_BYTES)
    with tarfile.open(path, "w", format=tar_format) as archive:
        for sample in range(SAMPLES_PER_SHARD):
            for suffix, size in (("jpg", IMAGE_BYTES), ("txt", TEXT_BYTES)):
                info = tarfile.TarInfo(f"{shard:05d}{sample:05d}.{suffix}")
                info.size = size
                info.mtime = 1.7e9 + 0.25 if tar_format == tarfile.PAX_FORMAT else 1_700_000_000
                archive.addfile(info, BytesIO(payload[:size]))
    return str(path)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def build_against_webdataset(urls: list[str], root: Path) -> dict[str, Any]:
    """One process each. The first round warms the page cache and is not counted."""
    samples = SHARDS * SAMPLES_PER_SHARD
    reading, building = [], []
    for _ in range(REPETITIONS + 1):
        reading.append(seconds(lambda: count_samples(urls)))
        building.append(build_seconds(urls, root, workers=1))
    reading, building = reading[1:], building[1:]
    return {
        "webdataset, samples/s": measure.spread([samples / value for value in reading]),
        "index, samples/s": measure.spread([samples / value for value in building]),
        "webdataset / index": measure.spread([slow / fast for slow, fast in zip(reading, building, strict=True)]),
    }


def build_seconds(urls: list[str], root: Path, workers: int) -> float:
    return seconds(partial(build_index, urls, root / f"index-{time.monotonic_ns()}", workers=workers))


def two_processes(urls: list[str], root: Path) -> dict[str, Any]:
    """What a second process brings, its start included. The shards are linked many times over."""
    links = []
    for number in range(COPIES * SHARDS):
        links.append(root / "links" / f"{number:05d}.tar")
        links[-1].parent.mkdir(exist_ok=True)
        links[-1].hardlink_to(urls[number % SHARDS])
    names = list(map(str, links))
    times = [(build_seconds(names, root, 1), build_seconds(names, root, 2)) for _ in range(REPETITIONS)]
    return {"shards": len(names), "one process / two": measure.spread([one / two for one, two in times])}


def count_samples(urls: list[str]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from webdataset.tariterators import tarfile_samples  # noqa: PLC0415 (imports torch)

        count = sum(1 for _ in tarfile_samples([{"url": url} for url in urls]))
    assert count == SHARDS * SAMPLES_PER_SHARD
    return count


def header_bytes(url: str, blocks_per_member: int) -> dict[str, float]:
    """Bytes that the kernel handed out, by its own count, for each 512 bytes of header in the shard."""
    blocks = 2 * SAMPLES_PER_SHARD * blocks_per_member + 1  # and the end marker
    list_shard(url)
    before = _bytes_read()
    list_shard(url)
    read = _bytes_read() - before
    return {"read": read, "header blocks": blocks, "per block / 512": read / blocks / 512}


def _bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def lookup(urls: list[str], root: Path) -> dict[str, Any]:
    """Keys a second: many at once, one by one, and with opening each shard first, as a data worker does."""
    path = root / "lookup"
    build_index(urls, path, workers=1)
    keys = {url: list(ShardIndex.load(path).shard(url)) for url in urls}
    total = sum(map(len, keys.values()))
    generator = np.random.default_rng(0)
    for one in keys.values():
        generator.shuffle(one)

    def with_opening() -> None:
        index = ShardIndex.load(path)
        for url, wanted in keys.items():
            index.shard(url).rows(wanted)

    table = ShardIndex.load(path).shard(urls[0])
    wanted = keys[urls[0]] * 40
    index = ShardIndex.load(path)
    work: dict[str, tuple[Callable[[], object], int]] = {
        "rows(keys)": (lambda: table.rows(wanted), len(wanted)),
        "row(key)": (lambda: [table.row(key) for key in wanted], len(wanted)),
        "index.shard(url).row(key)": (lambda: [index.shard(urls[0]).row(key) for key in wanted], len(wanted)),
        "load, then each shard once": (with_opening, total),
    }
    return {
        f"{name}, keys/s": measure.spread([count / seconds(one) for _ in range(REPETITIONS)])
        for name, (one, count) in work.items()
    }


def ten_million(root: Path) -> dict[str, Any]:
    """Synthesised below the tar layer: the writer gets listings of 10,000 keys, as it would from the readers."""
    context = multiprocessing.get_context("spawn")
    result: dict[str, Any] = {}
    for name, work in (("build", _build_large), ("load and look up every key", _ask_large)):
        with context.Pool(1) as pool:
            result[name] = pool.apply(work, (root / "large",))
    return result


def _peak_mb() -> float:
    """Of this program only: the peak that `getrusage` reports is inherited from the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def _build_large(path: Path) -> dict[str, float]:
    path.mkdir()
    before = _peak_mb()
    writer = IndexWriter(path, None)
    writer.shards = [ShardRecord(f"{shard:05d}.tar", f"/data/{shard:05d}.tar") for shard in range(LARGE_SHARDS)]

    def segments() -> Iterator[bytes]:
        ends = np.arange(1, LARGE_SAMPLES_PER_SHARD + 1, dtype=np.uint32) * 9
        for shard in range(LARGE_SHARDS):
            keys = b"".join(b"%05d%04d" % (shard, sample) for sample in range(LARGE_SAMPLES_PER_SHARD))
            data = writer.add_listing(shard, Listing(keys, ends, hashlib.md5(keys).digest(), 1, 1, ()))
            assert data is not None
            yield data

    duration = seconds(lambda: writer.write(segments()))
    disk = sum(file.stat().st_size for file in path.iterdir())
    return {
        "seconds": duration,
        "MB on disk": disk / 1e6,
        "peak MB": _peak_mb(),
        "peak MB above the start": _peak_mb() - before,
    }


def _ask_large(path: Path) -> dict[str, float]:
    before = _peak_mb()
    opening = time.perf_counter()
    index = ShardIndex.load(path)
    opening = time.perf_counter() - opening

    def ask() -> None:
        for shard in range(LARGE_SHARDS):
            rows = index.shard(f"/data/{shard:05d}.tar")
            rows.rows(list(rows))

    duration = seconds(ask)
    return {
        "seconds to load": opening,
        "keys/s": index.number_of_rows / duration,
        "peak MB": _peak_mb(),
        "peak MB above the start": _peak_mb() - before,
    }


def table(results: dict[str, Any]) -> str:
    """Markdown."""
    lines = ["| | median (least–most) | goal |", "|---|---|---|"]
    for name in FORMATS:
        ratio = results[f"build, {name}"]["webdataset / index"]
        lines.append(f"| time of webdataset / time of the build, {name} | {_range(ratio)} | ≥ 10 |")
        read = results[f"header bytes, {name}"]["per block / 512"]
        lines.append(f"| bytes read for each 512 bytes of header, {name} | {512 * read:.1f} | ≤ 614 |")
    lines.append(f"| one process / two | {_range(results['two processes, pax']['one process / two'])} | |")
    for name, rate in results["lookup"].items():
        lines.append(f"| {name} | {_range(rate, 1e6)} million | ≥ 1 million |")
    for name, found in results["10 million samples"].items():
        lines.append(f"| 10 million samples, {name} | {', '.join(f'{v:.4g} {k}' for k, v in found.items())} | |")
    return "\n".join(lines)


def _range(found: dict[str, float], unit: float = 1.0) -> str:
    return f"{found['median'] / unit:.2f} ({found['min'] / unit:.2f}–{found['max'] / unit:.2f}, n={found['n']})"


if __name__ == "__main__":
    measured = run()
    print(table(measured))
    print(f"\nwritten to {measure.save('index', measured)}")
