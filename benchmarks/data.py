"""Training data: as fast as open_clip's own pipeline from the same shards, and back in mid-epoch without decoding.

    python -m benchmarks data

Both give the same batches (`tests/integration/test_data_like_open_clip.py`), with open_clip's augmentation and
tokenizer. Epochs take turns in one run; workers are started before the clock.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import open_clip_train.data
import torch
from PIL import Image
from webdataset import TarWriter

from benchmarks import measure
from isogclr.shard_index import ShardIndex
from training.data.epoch import TrainData
from training.data.image_text import PairFiles, PairInputs
from training.data.position import Position
from training.data.shards import ShardSource
from training.data.tally import Tally
from training.randomness import derive_seed, generators_preserved, seed_augmentation
from training.settings import DataSettings

REPETITIONS = 5
SHARDS, SAMPLES_PER_SHARD, PIXELS, BATCH = 4, 192, 256, 64
SAMPLES = SHARDS * SAMPLES_PER_SHARD
LINKS = 64
RESUMED_AT = 0.75  # of an epoch
Cost = tuple[float, float]


def run() -> dict[str, Any]:
    """All results as plain numbers and strings."""
    torch.set_num_threads(1)
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        urls = write_shards(Path(folder) / "shards")
        index = ShardIndex.build(urls, Path(folder) / "index")
        many = link_shards(Path(folder))
        many_index = ShardIndex.build(many, Path(folder) / "many-index")
        results: dict[str, Any] = {}
        for workers in (0, 2):
            found = throughput(urls, index, workers)
            rate = found["samples/s, ours"]["median"]
            results[f"{workers} workers"] = found | resume(many, many_index, workers, rate)
        results["seeding"] = seeding(urls, index)
    return results


def write_shards(folder: Path) -> str:
    """JPEGs of smooth noise, about as large as photographs of that size."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for shard in range(SHARDS):
        with TarWriter(str(folder / f"{shard:05d}.tar")) as writer:
            for sample in range(SAMPLES_PER_SHARD):
                coarse = generator.integers(0, 256, (24, 24, 3), dtype=np.uint8)
                stream = BytesIO()
                Image.fromarray(coarse).resize((PIXELS, PIXELS), Image.Resampling.BICUBIC).save(
                    stream, "JPEG", quality=90
                )
                caption = f"a photo of sample {sample} in shard {shard}, with some more words behind it"
                writer.write({"__key__": f"{shard:04d}{sample:05d}", "jpg": stream.getvalue(), "txt": caption})
    return str(folder / f"{{00000..{SHARDS - 1:05d}}}.tar")


def link_shards(folder: Path) -> str:
    """The same shards under many names."""
    (folder / "many").mkdir()
    for number in range(LINKS):
        (folder / "many" / f"{number:05d}.tar").hardlink_to(folder / "shards" / f"{number % SHARDS:05d}.tar")
    return str(folder / "many" / f"{{00000..{LINKS - 1:05d}}}.tar")


def preparation() -> tuple[Any, Any]:
    return open_clip.image_transform(224, is_train=True), open_clip.get_tokenizer("ViT-B-32")


def open_ours(urls: str, index: ShardIndex, workers: int) -> TrainData:
    config = DataSettings(urls, batch_size=BATCH, workers=workers, seed=0)
    return TrainData.open(config, index, 0, 1, PairInputs(*preparation()))


def open_theirs(urls: str, workers: int) -> Any:
    transform, tokenizer = preparation()
    args = Namespace(
        train_data=urls,
        dataset_resampled=False,
        train_num_samples=SAMPLES,
        train_data_upsampling_factors=None,
        seed=0,
        batch_size=BATCH,
        workers=workers,
        world_size=1,
    )
    return open_clip_train.data.get_wds_dataset(args, transform, is_train=True, tokenizer=tokenizer)


def throughput(urls: str, index: ShardIndex, workers: int) -> dict[str, Any]:
    """Within one process both are asked for a batch in turn; worker processes would run at the same time, so there
    whole epochs take turns. Processor time is what a busy machine leaves comparable."""
    ours, theirs = open_ours(urls, index, workers), open_theirs(urls, workers)
    list(ours.epoch(0))  # starts the workers and warms the page cache
    list(theirs.dataloader)
    elapsed, processor, rates = [], [], []
    for epoch in range(1, REPETITIONS + 1):
        theirs.set_epoch(epoch)
        if workers:
            ours_took, theirs_took = cost(partial(list, ours.epoch(epoch))), cost(partial(list, theirs.dataloader))
        else:
            ours_took, theirs_took = in_turn(iter(ours.epoch(epoch)), iter(theirs.dataloader))
        elapsed.append(theirs_took[0] / ours_took[0])
        processor.append(theirs_took[1] / ours_took[1])
        rates.append(SAMPLES / ours_took[0])
    ours.close()
    return {
        "samples/s, ours / open_clip": measure.spread(elapsed),
        "samples per processor second, ours / open_clip": measure.spread(processor),
        "samples/s, ours": measure.spread(rates),
    }


def in_turn(ours: Iterator[Any], theirs: Iterator[Any]) -> tuple[Cost, Cost]:
    """What each takes for an epoch; the order within a turn alternates."""
    spent = np.zeros((2, 2))
    for turn in range(SAMPLES // BATCH):
        for contender in (0, 1) if turn % 2 else (1, 0):
            spent[contender] += cost(partial(next, (ours, theirs)[contender]))
    return tuple(spent[0].tolist()), tuple(spent[1].tolist())


def resume(urls: str, index: ShardIndex, workers: int, rate: float) -> dict[str, Any]:
    """The time to a batch in an epoch of many shards: resumed there, and by decoding all before it at the rate that
    was measured."""
    data = open_ours(urls, index, workers)
    streams = max(1, workers)
    stop = round(RESUMED_AT * data.batches_per_epoch) // streams * streams
    # Every image decodes, so a worker has drawn what it has given.
    position = replace(data.start_of(0), batches=stop, drawn=(stop // streams * BATCH,) * streams)
    next(iter(data.epoch(0)))
    took = []
    for _ in range(REPETITIONS):
        took.append(cost(partial(next, _Starting(data, position)))[0])
    data.close()
    name = f"to batch {stop} of {data.batches_per_epoch}"
    return {
        f"{name}, resuming, seconds": measure.spread(took),
        f"{name}, decoding / resuming": measure.spread([stop * BATCH / rate / one for one in took]),
    }


class _Starting:
    """Starts to read when it is asked for the first batch."""

    def __init__(self, data: TrainData, position: Position) -> None:
        self._data, self._position = data, position

    def __next__(self) -> Any:
        return next(iter(self._data.resume_at(self._position)))


def seeding(urls: str, index: ShardIndex) -> dict[str, Any]:
    """What the seeds of augmentation cost, as a share of decoding an image (before any augmentation)."""
    source = ShardSource([urls.replace(f"{{00000..{SHARDS - 1:05d}}}", "00000")], index, PairFiles(), 0)
    tally = Tally(source.files)
    samples = [sample.content for sample in source.read_shard(source.urls[0], tally)]
    shares = []
    with generators_preserved():
        for _ in range(REPETITIONS):
            decoding = cost(lambda: [source.decode(content) for content in samples])[1]
            shares.append(cost(partial(seed_all, len(samples)))[1] / decoding)
    return {"share of decoding": measure.spread(shares)}


def seed_all(samples: int) -> None:
    for row in range(samples):
        seed_augmentation(derive_seed("augmentation", 0, 0, row))


def cost(work: Callable[[], object]) -> Cost:
    """Seconds on the clock, and of processors in this process and its workers."""
    begin, busy = time.perf_counter(), processor_seconds()
    work()
    return time.perf_counter() - begin, processor_seconds() - busy


def processor_seconds() -> float:
    ticks = 0
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split():
        fields = Path(f"/proc/{child}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def table(results: dict[str, Any]) -> str:
    """Markdown."""
    lines = ["| | median (least–most) | goal |", "|---|---|---|"]
    for workers in ("0 workers", "2 workers"):
        for name, found in results[workers].items():
            goal = "≥ 0.97" if "open_clip" in name else ""
            lines.append(f"| {workers}: {name} | {_range(found)} | {goal} |")
    share = results["seeding"]["share of decoding"]
    percent = {name: value if name == "n" else 100 * value for name, value in share.items()}
    lines.append(f"| seeding augmentation, % of decoding a {PIXELS}-px JPEG | {_range(percent)} | ≤ 3 |")
    return "\n".join(lines)


def _range(found: dict[str, float]) -> str:
    return f"{found['median']:.2f} ({found['min']:.2f}–{found['max']:.2f}, n={found['n']})"


if __name__ == "__main__":
    measured = run()
    print(table(measured))
    print(f"\nwritten to {measure.save('data', measured)}")
