"""Training data: as fast as open_clip's own pipeline from the same shards, and back in mid-epoch without decoding.

    python -m benchmarks data

Both give the same batches (`tests/integration/test_data_like_open_clip.py`), with open_clip's augmentation and
tokenizer. Epochs take turns in one run; workers are started before the clock.
"""

from __future__ import annotations

import logging
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
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
from training.data import TrainData
from training.data_config import DataConfig
from training.positions import Position
from training.seeds import derive_seed, generators_preserved, seed_augmentation
from training.shard_source import ShardSource
from training.tally import Tally

REPETITIONS = 7
SHARDS, SAMPLES_PER_SHARD, PIXELS, BATCH = 4, 320, 256, 64
RESUMED_AT = 0.75  # of an epoch


def run() -> dict[str, Any]:
    """All results as plain numbers and strings."""
    torch.set_num_threads(1)
    logging.getLogger().setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        urls = write_shards(Path(folder) / "shards")
        index = ShardIndex.build(urls, Path(folder) / "index")
        results: dict[str, Any] = {}
        for workers in (0, 2):
            results[f"{workers} workers"] = throughput(urls, index, workers) | resume(urls, index, workers)
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


def preparation() -> tuple[Any, Any]:
    return open_clip.image_transform(224, is_train=True), open_clip.get_tokenizer("ViT-B-32")


def open_ours(urls: str, index: ShardIndex, workers: int) -> TrainData:
    config = DataConfig(urls, batch_size=BATCH, workers=workers, seed=0)
    return TrainData.open(config, index, 0, 1, *preparation())


def open_theirs(urls: str, workers: int) -> Any:
    transform, tokenizer = preparation()
    args = Namespace(
        train_data=urls,
        dataset_resampled=False,
        train_num_samples=SHARDS * SAMPLES_PER_SHARD,
        train_data_upsampling_factors=None,
        seed=0,
        batch_size=BATCH,
        workers=workers,
        world_size=1,
    )
    return open_clip_train.data.get_wds_dataset(args, transform, is_train=True, tokenizer=tokenizer)


def throughput(urls: str, index: ShardIndex, workers: int) -> dict[str, Any]:
    """Within one process both are asked for a batch in turn; worker processes would run at the same time, so there
    whole epochs take turns."""
    ours, theirs = open_ours(urls, index, workers), open_theirs(urls, workers)
    list(ours.epoch(0))  # starts the workers and warms the page cache
    list(theirs.dataloader)
    ratios, rates = [], []
    for epoch in range(1, REPETITIONS + 1):
        theirs.set_epoch(epoch)
        if workers:
            our_seconds = seconds(partial(list, ours.epoch(epoch)))
            their_seconds = seconds(partial(list, theirs.dataloader))
        else:
            our_seconds, their_seconds = in_turn(iter(ours.epoch(epoch)), iter(theirs.dataloader))
        ratios.append(their_seconds / our_seconds)
        rates.append(SHARDS * SAMPLES_PER_SHARD / our_seconds)
    ours.close()
    return {"samples/s, ours / open_clip": measure.spread(ratios), "samples/s, ours": measure.spread(rates)}


def in_turn(ours: Iterator[Any], theirs: Iterator[Any]) -> tuple[float, float]:
    """Seconds of each for an epoch; the order within a turn alternates."""
    spent = [0.0, 0.0]
    for turn in range(SHARDS * SAMPLES_PER_SHARD // BATCH):
        for contender in (0, 1) if turn % 2 else (1, 0):
            spent[contender] += seconds(partial(next, (ours, theirs)[contender]))
    return spent[0], spent[1]


def resume(urls: str, index: ShardIndex, workers: int) -> dict[str, Any]:
    """From the start of the epoch: the time to a batch, decoding all before it, and resumed there."""
    data = open_ours(urls, index, workers)
    position = data.start_of(0)
    batches = list(data.epoch(0))
    stop = round(RESUMED_AT * len(batches))
    for batch in batches[:stop]:
        position = position.after(batch)
    ratios = []
    for _ in range(REPETITIONS):
        decoding = seconds(lambda: reach(data, data.start_of(0), stop + 1))
        ratios.append(decoding / seconds(lambda: reach(data, position, 1)))
    data.close()
    return {f"to batch {stop} of {len(batches)}, decoding / resuming": measure.spread(ratios)}


def reach(data: TrainData, position: Position, count: int) -> None:
    batches = iter(data.resume_at(position))
    for _ in range(count):
        next(batches)


def seeding(urls: str, index: ShardIndex) -> dict[str, Any]:
    """What the seeds of augmentation cost, as a share of decoding an image (before any augmentation)."""
    source = ShardSource([urls.replace(f"{{00000..{SHARDS - 1:05d}}}", "00000")], index, 0)
    samples = [sample.content for sample in source.read_shard(source.urls[0], Tally())]
    shares = []
    with generators_preserved():
        for _ in range(REPETITIONS):
            decoding = seconds(lambda: [source.decode(content) for content in samples])
            shares.append(seconds(partial(seed_all, len(samples))) / decoding)
    return {"share of decoding": measure.spread(shares)}


def seed_all(samples: int) -> None:
    for row in range(samples):
        seed_augmentation(derive_seed("augmentation", 0, 0, row))


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


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
