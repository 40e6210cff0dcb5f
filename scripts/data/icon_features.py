"""Icons behind frozen encoders: what `icons.py` has written in, one folder of features out.

    python scripts/data/icon_features.py DATA/icons DATA/icons-frozen

The same 50,000 training icons as in `scripts/study/icon_training.py`, and all that are kept apart. A caption is a
name, once, however many icons have it. `scripts/study/feature_set.py` says what is written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from frozen_encoders import encode_pictures, encode_texts
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "study"))
from feature_set import FeatureSet, Pairs
from icon_training import SPLITS, training_places

SIDE = 96  # an icon has 32 pixels, which EfficientNet would shrink to one place of its last map
TRAINING_ICONS = 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="folder of icons.py")
    parser.add_argument("target", type=Path, help="folder to write; must not exist")
    options = parser.parse_args()
    if options.target.exists():
        raise SystemExit(f"{options.target} exists: remove it, or name another folder")
    pictures, split = np.load(options.source / "pictures.npy"), np.load(options.source / "split.npy")
    lines = (options.source / "names.txt").read_text(encoding="utf-8").splitlines()
    pairs, places, names = pair_up(split, lines, TRAINING_ICONS)
    images = encode_pictures((large(pictures[place]) for place in places), len(places))
    FeatureSet(images, encode_texts(names), pairs, tuple(names)).save(options.target)
    print({name: len(one.image) for name, one in pairs.items()}, "pairs in", options.target)


def pair_up(
    split: npt.NDArray[np.int8], lines: list[str], limit: int
) -> tuple[dict[str, Pairs], npt.NDArray[np.int64], list[str]]:
    """Pairs of each split, which icons they number, and the distinct names."""
    chosen = {
        name: training_places(split, limit) if name == "train" else np.flatnonzero(split == number)
        for name, number in SPLITS.items()
    }
    places = np.concatenate([*chosen.values()])
    names, number_of = np.unique([lines[place] for place in places], return_inverse=True)
    ends = np.cumsum([len(one) for one in chosen.values()])
    pairs = {
        name: Pairs(np.arange(end - len(one), end), number_of[end - len(one) : end])
        for (name, one), end in zip(chosen.items(), ends, strict=True)
    }
    return pairs, places, names.tolist()


def large(icon: npt.NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(icon).resize((SIDE, SIDE), Image.Resampling.BICUBIC).convert("RGB")


if __name__ == "__main__":
    main()
