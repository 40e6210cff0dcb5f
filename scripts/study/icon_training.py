"""Icons and their names, from scratch: a convolutional network of three layers, and a bag of words.

What `scripts/data/icons.py` has written, in memory. Tested on icons of authors that were not trained on: an icon
finds its name among all names of the split, a name any icon that has it. Also by how common a name is: thirds of
the queries by the mean logarithm of how often their words stand in training.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from grid import Run
from memory_training import Rows, Training, TwoTowers, options_of, temperatures
from torch import Tensor, nn

from retrieval import RANKS, first_hit, recalls

WORDS = 8  # of a name; what follows is left out
WIDTH = 128
SPLITS = {"train": 0, "validation": 1, "test": 2}
THIRDS = ("rare", "middle", "frequent")


def training_places(split: npt.NDArray[np.int8], limit: int | None) -> npt.NDArray[np.int64]:
    """Training icons, or so many of them, always the same."""
    return np.sort(np.random.default_rng(0).permutation(np.flatnonzero(split == SPLITS["train"]))[:limit])


class Icons:
    """See `Material`. `limit` takes so many training icons."""

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        pictures, split = np.load(folder / "pictures.npy"), np.load(folder / "split.npy")
        self.names = (folder / "names.txt").read_text(encoding="utf-8").splitlines()
        self._pictures = torch.from_numpy(pictures)
        self.train = torch.from_numpy(training_places(split, limit))
        self._split = split
        self.counts = Counter(word for row in self.train.tolist() for word in self.names[row].split())
        words = [word for word, count in self.counts.most_common() if count > 1]
        self._numbers = {word: number for number, word in enumerate(words, start=2)}  # 0 is none, 1 unknown
        self.vocabulary = len(words) + 2
        self._bags = self.bags([self.names[row] for row in self.train.tolist()])
        self.samples = len(self.train)

    def bags(self, names: list[str]) -> Tensor:
        """Words of each name by number, [N, WORDS]."""
        found = np.zeros((len(names), WORDS), dtype=np.int64)
        for place, name in enumerate(names):
            numbers = [self._numbers.get(word, 1) for word in name.split()[:WORDS]]
            found[place, : len(numbers)] = numbers
        return torch.from_numpy(found)

    def pictures(self, places: Tensor) -> Tensor:
        """Ink from 0 to 1, [N, 1, 32, 32]."""
        return 1 - self._pictures[places].float()[:, None] / 255

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return self.pictures(self.train[rows]), self._bags[rows]

    def places(self, split: str) -> Tensor:
        return torch.from_numpy(np.flatnonzero(self._split == SPLITS[split]))

    def commonness(self, names: list[str]) -> npt.NDArray[np.float64]:
        """Mean logarithm of how often the words of a name stand in training."""
        return np.array([np.mean([np.log(self.counts[word] + 1) for word in name.split()]) for name in names])


class BagOfWords(nn.Module):
    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(vocabulary, WIDTH, mode="mean", padding_idx=0)
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, bags: Tensor) -> Tensor:
        found: Tensor = self.head(self.words(bags))
        return found


def _network() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((1, 24), (24, 48), (48, 96)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.GELU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * 16, WIDTH))


def open_training(run: Run, folder: Path) -> Training:
    material = Icons(folder, options_of(run).get("pairs"))
    torch.manual_seed(run.seed)
    return Training(run, material, TwoTowers(_network(), BagOfWords(material.vocabulary), run.loss))


def train_and_measure(run: Run, folder: Path) -> Rows:
    """All numbers of a run."""
    training = open_training(run, folder)
    rows: Rows = []
    for epoch in training.epochs():
        if run.curve or epoch == options_of(run)["epochs"]:
            rows += [(str(epoch), name, value) for name, value in retrieval(training, run.split).items()]
    return rows + temperatures(training.table) + semantics(training)


def retrieval(training: Training, split: str) -> dict[str, float]:
    """Recall among the icons of a split and their names; R@10 also by how common a name is."""
    icons = training.material
    assert isinstance(icons, Icons)
    places = icons.places(split)
    names, group = np.unique([icons.names[place] for place in places.tolist()], return_inverse=True)
    own, candidates = torch.from_numpy(group), torch.arange(len(names))
    images, texts = training.towers.encoded(icons.pictures(places), icons.bags(names.tolist()))
    found = recalls(images, texts, own, candidates)
    common = icons.commonness(names.tolist())
    sides = {
        "image_to_text": (first_hit(images, texts, own, candidates), common[group]),
        "text_to_image": (first_hit(texts, images, candidates, own), common),
    }
    for side, (first, values) in sides.items():
        third = np.digitize(values, np.quantile(values, (1 / 3, 2 / 3)))
        for number, name in enumerate(THIRDS):
            hits = (first < max(RANKS)).numpy()[third == number]
            if hits.size:
                found[f"{side}_R@{max(RANKS)}_{name}"] = 100 * float(hits.mean())
    return found


def semantics(training: Training) -> Rows:
    """Rank correlation of τ with how common the words of a training sample are."""
    icons, table = training.material, training.table
    assert isinstance(icons, Icons)
    learned = [name for name in table.columns if name.endswith("temperature")]
    if not learned:
        return []
    from scipy.stats import spearmanr  # noqa: PLC0415

    common = icons.commonness([icons.names[row] for row in icons.train.tolist()])
    seen = (table.visits > 0).numpy()
    return [
        ("", f"{name}_against_caption_words", float(spearmanr(table.columns[name].numpy()[seen], common[seen])[0]))
        for name in learned
    ]
