"""Small shards for tests, and what open_clip's own reader makes of them."""

from __future__ import annotations

import io
import tarfile
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WORDS = ("red", "green", "blue", "dark", "light", "round", "small", "large", "left", "right", "old", "new")
BROKEN = b"\xff\xd8\xff this is no JPEG"
Member = tuple[str | bytes, bytes] | tarfile.TarInfo


def write_shard(path: Path, members: Iterable[Member], tar_format: int = tarfile.USTAR_FORMAT) -> Path:
    """Names may be bytes that are not UTF-8; a TarInfo is written as it is, without payload."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=tar_format, encoding="utf-8", errors="surrogateescape") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            name, payload = member
            info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name)
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))
    return path


def pairs(keys: Iterable[str]) -> list[Member]:
    """An image and a text for each key."""
    return [member for key in keys for member in ((f"{key}.jpg", b"J" * 700), (f"{key}.txt", b"a text"))]


def write_pairs(path: Path, keys: Iterable[str], tar_format: int = tarfile.USTAR_FORMAT) -> Path:
    return write_shard(path, pairs(keys), tar_format)


def picture(number: int) -> bytes:
    """A tiny lossless image whose first pixel is its number."""
    pixels = np.zeros((2, 2, 3), dtype=np.uint8)
    pixels[..., 0], pixels[..., 1] = number % 256, number // 256
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def write_numbered_shards(
    folder: Path, sizes: Sequence[int], broken: Iterable[int] = (), without_caption: Iterable[int] = ()
) -> str:
    """Shards of so many samples, numbered throughout; returns the brace pattern."""
    broken, without_caption = set(broken), set(without_caption)
    number = 0
    for shard, size in enumerate(sizes):
        members: list[Member] = []
        for _ in range(size):
            members.append((f"{number:06d}.png", BROKEN if number in broken else picture(number)))
            if number not in without_caption:
                members.append((f"{number:06d}.txt", f"caption {number}".encode()))
            members.append((f"{number:06d}.json", b"{}"))
            number += 1
        write_shard(folder / f"{shard:05d}.tar", members)
    return str(folder / f"{{00000..{len(sizes) - 1:05d}}}.tar")


def write_noise_shards(folder: Path, sizes: Sequence[int], seed: int = 0, prefix: str = "shard") -> str:
    """Shards of noise images of 16 × 16 pixels with captions of three words; returns their pattern."""
    generator = np.random.default_rng(seed)
    number = 0
    for shard, size in enumerate(sizes):
        members: list[Member] = []
        for _ in range(size):
            image = io.BytesIO()
            Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(image, "PNG")
            caption = " ".join(generator.choice(WORDS, 3))
            key = f"{prefix}{number:06d}"
            members += [(f"{key}.png", image.getvalue()), (f"{key}.txt", caption.encode())]
            number += 1
        write_shard(folder / f"{prefix}-{shard:03d}.tar", members)
    return str(folder / f"{prefix}-{{000..{len(sizes) - 1:03d}}}.tar")


def write_copy_shards(folder: Path, samples: Sequence[Sequence[Member]], shards: int) -> None:
    """The shards of a copy in clip_benchmark's layout: `test/N.tar` and `test/nshards.txt`."""
    size = -(-len(samples) // shards)
    for number in range(shards):
        part = samples[number * size : (number + 1) * size]
        write_shard(folder / "test" / f"{number}.tar", [member for sample in part for member in sample])
    (folder / "test" / "nshards.txt").write_text(f"{shards}\n")


def open_clip_samples(urls: Sequence[str | Path]) -> list[tuple[str, str]]:
    """(url, key) of every sample that open_clip's training pipeline reads, in order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside torch
        from open_clip_train.data import tarfile_to_samples_nothrow  # noqa: PLC0415 (takes seconds)

        source: list[dict[str, Any]] = [{"url": str(url)} for url in urls]
        found = [(sample["__url__"], sample["__key__"]) for sample in tarfile_to_samples_nothrow(source)]
    for one in source:
        if "stream" in one:  # the reader leaves them open
            one["stream"].close()
    return found
