"""Heads on frozen features, trained in memory.

The paper's setting in small, at a tenth of the cost of `training.main` over shards of features. A head is two
layers with a GELU between and dropout before each: without it CLIP's recall on Flickr8k is 35 instead of 42. A
sample is a pair: a photo with five captions has five rows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from feature_set import FeatureSet
from grid import Run
from memory_training import Rows, Training, TwoTowers, options_of, temperatures
from torch import Tensor, nn

from retrieval import recalls

WIDTH = 256  # of the hidden layer and of the common space
DROPOUT = 77  # of 256: of shares of 0, 0.3 and 0.5 the best for CLIP, on the validation part: 35, 42, 39


class Dropout(nn.Module):
    """`nn.Dropout` from a byte per number: torch's own draws took a fifth of a step."""

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return values
        words = torch.empty(-(-values.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        bytes_ = words.view(torch.uint8)[: values.numel()].view(values.shape)
        return values * (bytes_ >= DROPOUT) * (256 / (256 - DROPOUT))


class FeaturePairs:
    """Features as tensors; see `Material`."""

    def __init__(self, folder: Path) -> None:
        found = FeatureSet.load(folder)
        self.pairs = found.pairs
        self.images = torch.from_numpy(found.images).float()
        self.texts = torch.from_numpy(found.texts).float()
        self.samples = len(self.pairs["train"].image)

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        pairs = self.pairs["train"]
        return self.images[pairs.image[rows]], self.texts[pairs.text[rows]]


def open_training(run: Run, folder: Path) -> Training:
    material = FeaturePairs(folder)
    torch.manual_seed(run.seed)
    sizes = material.images.shape[1], material.texts.shape[1]
    return Training(run, material, TwoTowers(*(_head(size) for size in sizes), run.loss))


def _head(size: int) -> nn.Module:
    first, second = nn.Linear(size, WIDTH), nn.Linear(WIDTH, WIDTH)
    return nn.Sequential(Dropout(), first, nn.GELU(), Dropout(), second)


def train_and_measure(run: Run, folder: Path) -> Rows:
    """All numbers of a run."""
    training = open_training(run, folder)
    rows: Rows = []
    for epoch in training.epochs():
        if run.curve or epoch == options_of(run)["epochs"]:
            rows += [(str(epoch), name, value) for name, value in retrieval(training, run.split).items()]
    return rows + temperatures(training.table)


def retrieval(training: Training, split: str) -> dict[str, float]:
    """Recall among the pictures of a split and their captions.

    A picture finds any of its captions, a caption any of its pictures: Flickr8k has the first, icons the second.
    """
    material = training.material
    assert isinstance(material, FeaturePairs)
    pairs = material.pairs[split]
    pictures, place = np.unique(pairs.image, return_index=True)
    captions, caption_place = np.unique(pairs.text, return_index=True)
    group = pairs.text if len(pictures) == len(pairs.image) else pairs.image
    images, texts = training.towers.encoded(material.images[pictures], material.texts[captions])
    return recalls(images, texts, torch.from_numpy(group[place]), torch.from_numpy(group[caption_place]))
