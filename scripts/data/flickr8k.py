"""Flickr8k behind frozen encoders: photos and captions in, one folder of features out.

    python scripts/data/flickr8k.py FLICKR8K DATA/flickr8k-frozen

FLICKR8K is the data set as it is published: `Flicker8k_Dataset/*.jpg` and `Flicker8k_text/` with the captions
(`Flickr8k.token.txt`) and the lists of photos (`Flickr_8k.trainImages.txt` and so on: 6,000, 1,000 and 1,000). For
research only; nothing of it is in this repository. Captions of photos in none of the three lists are left out.

`scripts/study/feature_set.py` says what is written. A photo is resized to 224 pixels on its shorter side and cut to
its middle, as ImageNet's pictures are for evaluation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from frozen_encoders import encode_pictures, encode_texts
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "study"))
from feature_set import FeatureSet, Pairs

SIDE = 224
SPLITS = {"train": "train", "validation": "dev", "test": "test"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with Flicker8k_Dataset and Flicker8k_text")
    parser.add_argument("target", type=Path, help="folder to write; must not exist")
    options = parser.parse_args()
    if options.target.exists():
        raise SystemExit(f"{options.target} exists: remove it, or name another folder")
    text = options.source / "Flicker8k_text"
    splits = {name: read_list(text / f"Flickr_8k.{part}Images.txt") for name, part in SPLITS.items()}
    captions = read_captions(text / "Flickr8k.token.txt")
    photos = [photo for names in splits.values() for photo in names]
    missing = [photo for photo in photos if not (options.source / "Flicker8k_Dataset" / photo).is_file()]
    if missing:
        raise SystemExit(f"Flicker8k_Dataset lacks {len(missing):,} photos of the lists, {missing[0]} first")
    pairs, texts = pair_up(splits, captions)
    images = encode_pictures(read_photos(options.source / "Flicker8k_Dataset", photos), len(photos))
    FeatureSet(images, encode_texts(texts), pairs, tuple(texts)).save(options.target)
    print({name: len(one.image) for name, one in pairs.items()}, "pairs in", options.target)


def read_list(path: Path) -> list[str]:
    """File names, one per line."""
    return path.read_text(encoding="utf-8").split()


def read_captions(path: Path) -> dict[str, list[str]]:
    """Lines such as `name.jpg#0<tab>A child .`, by photo."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, caption = line.split("\t", 1)
        found.setdefault(name.rpartition("#")[0], []).append(caption.strip())
    return found


def pair_up(splits: dict[str, list[str]], captions: dict[str, list[str]]) -> tuple[dict[str, Pairs], list[str]]:
    """Every caption with its photo; photos are numbered split after split."""
    pairs, texts, first = {}, [], 0
    for name, photos in splits.items():
        image, start = [], len(texts)
        for number, photo in enumerate(photos, start=first):
            texts += captions[photo]
            image += [number] * len(captions[photo])
        pairs[name] = Pairs(np.array(image), np.arange(start, len(texts)))
        first += len(photos)
    return pairs, texts


def read_photos(folder: Path, names: list[str]) -> Iterator[Image.Image]:
    for name in names:
        with Image.open(folder / name) as opened:
            yield middle(opened.convert("RGB"))


def middle(photo: Image.Image) -> Image.Image:
    """The middle square, SIDE pixels wide."""
    scale = SIDE / min(photo.size)
    width, height = (max(SIDE, round(side * scale)) for side in photo.size)
    resized = photo.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - SIDE) // 2, (height - SIDE) // 2
    return resized.crop((left, top, left + SIDE, top + SIDE))


if __name__ == "__main__":
    main()
