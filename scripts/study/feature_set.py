"""Pairs of pictures and captions behind frozen encoders, as files.

    images.npy   [P, 1280] float16     features of the pictures, standardised over those of the training pairs
    texts.npy    [T, 384] float16      the same of the captions
    pairs.npz    NAME_image, NAME_text int64, for NAME in train, validation, test: which picture has which caption
    texts.txt    the captions, one per line, in the order of texts.npy

A picture may have several captions (Flickr8k has five): then it stands in several pairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.floating]
Numbers = npt.NDArray[np.int64]
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Pairs:
    """Positions of the pictures and of the captions of some pairs."""

    image: Numbers
    text: Numbers


@dataclass(frozen=True)
class FeatureSet:
    images: Features
    texts: Features
    pairs: Mapping[str, Pairs]
    captions: tuple[str, ...]

    def save(self, folder: Path) -> None:
        """Into a new folder, which appears whole."""
        partial = folder.with_name(folder.name + ".partial")
        partial.mkdir(parents=True, exist_ok=True)
        train = self.pairs["train"]
        for name, values, used in (("images", self.images, train.image), ("texts", self.texts, train.text)):
            chosen = values[np.unique(used)].astype(np.float64)
            scaled = (values - chosen.mean(axis=0)) / (chosen.std(axis=0) + 1e-6)
            np.save(partial / f"{name}.npy", np.clip(scaled, -8, 8).astype(np.float16))
        columns = {f"{name}_image": one.image for name, one in self.pairs.items()}
        columns |= {f"{name}_text": one.text for name, one in self.pairs.items()}
        np.savez(partial / "pairs.npz", **columns)
        lines = "".join(" ".join(caption.split()) + "\n" for caption in self.captions)
        (partial / "texts.txt").write_text(lines, encoding="utf-8")
        partial.rename(folder)

    @classmethod
    def load(cls, folder: Path) -> FeatureSet:
        stored = np.load(folder / "pairs.npz")
        return cls(
            np.load(folder / "images.npy"),
            np.load(folder / "texts.npy"),
            {name: Pairs(stored[f"{name}_image"], stored[f"{name}_text"]) for name in SPLITS},
            tuple((folder / "texts.txt").read_text(encoding="utf-8").splitlines()),
        )
