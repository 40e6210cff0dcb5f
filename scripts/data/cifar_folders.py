"""CIFAR-10 or CIFAR-100 as a folder per class, with some training pictures kept apart for choosing settings.

    python scripts/data/cifar_folders.py CIFAR DATA/cifar10 --validation-per-class 200

CIFAR has `train/CLASS/*.png` and `test/CLASS/*.png`. What is written (names of files stay):

    DATA/cifar10/train/CLASS/        all training pictures: for what is reported
    DATA/cifar10/test/CLASS/
    DATA/cifar10/tune-train/CLASS/   training pictures without those of the next
    DATA/cifar10/tune-test/CLASS/    the first of each class by a hash of their content: for choosing settings

The last two are links to the first, so that a picture is on disk once.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with train and test")
    parser.add_argument("target", type=Path, help="folder to write; must not exist")
    parser.add_argument("--validation-per-class", type=int, required=True, help="pictures for choosing settings")
    options = parser.parse_args()
    if options.target.exists():
        raise SystemExit(f"{options.target} exists: remove it, or name another folder")
    partial = options.target.with_name(options.target.name + ".partial")
    for part in ("train", "test"):
        if not (options.source / part).is_dir():
            raise SystemExit(
                f"{options.source} has no folder {part}: expected train/CLASS/*.png and test/CLASS/*.png"
            )
        shutil.copytree(options.source / part, partial / part)
    for folder in sorted((partial / "train").iterdir()):
        pictures = sorted(folder.glob("*.png"), key=place)
        if len(pictures) <= options.validation_per_class:
            raise SystemExit(
                f"{folder.name} has {len(pictures)} pictures: choose fewer with --validation-per-class"
            )
        for number, picture in enumerate(pictures):
            part = "tune-test" if number < options.validation_per_class else "tune-train"
            target = partial / part / folder.name / picture.name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(picture, target)
    partial.rename(options.target)
    print(f"written to {options.target}")


def place(picture: Path) -> bytes:
    """Where a picture stands in an order that depends on nothing but its content."""
    return hashlib.sha256(picture.read_bytes()).digest()


if __name__ == "__main__":
    main()
