"""What is a better s worth? SogCLR with its s from the batch, from memories, and exact.

    python scripts/study/estimates_of_s.py DATA/flickr8k-frozen --batch-size 32 --lr 0.001 --temperature 0.03 \
        --estimates batch "gamma 0.8" exact --seeds 100 101 >> docs/study/estimates_of_s.csv

Here s decides what is learned; in `age_of_s.py` it is only watched. `exact` is log g of an anchor over *all*
training pairs, of which features are kept and made again every `--refresh` steps: what every cheaper estimate is
after (a drift, prototypes as in NeuCLIP, a residual beside them), at a price that no user could pay. What is
measured is recall on the validation part.

    batch                no memory, γ = 1
    gamma G              the paper's moving average, eq. 12
    gamma G, drift       see `age_of_s.py`
    sigmoid C            γ_i = sigmoid(log s_i + C), as in SCENT (arXiv 2602.02877)
    exact                see above
    exact, gamma G       eq. 12 with an exact s in place of the remembered one
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import feature_training
import icon_training
import torch
from age_of_s import Memory, constant
from grid import DataSet, Run
from memory_training import Training
from torch import Tensor

from isogclr.losses import LossOutput
from isogclr.objective import hardness, log_batch_mean, moving_average, surrogate, weights

COLUMNS = (
    *("data_set", "pairs", "batch_size", "epochs", "lr", "weight_decay", "temperature"),
    *("estimate", "seed", "mean_recall"),
)
SIDES = ("image", "text")
CHUNK = 4096
Estimate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # rows, log g, anchors, positives → log s


class Everything:
    """Features of all training pairs, at most `refresh` steps old; with dropout, as those of a batch."""

    def __init__(self, training: Training, refresh: int) -> None:
        self._training, self._refresh = training, refresh
        self._made = -refresh
        self._features: dict[str, Tensor] = {}

    @torch.no_grad()
    def features(self, side: str) -> Tensor:
        training = self._training
        if training.step - self._made >= self._refresh:
            rows = torch.arange(training.samples).split(CHUNK)
            images, texts = zip(*(training.towers(*training.material.batch(part)) for part in rows), strict=True)
            self._features = {"image": torch.cat(images), "text": torch.cat(texts)}
            self._made = training.step
        return self._features[side]


class EstimatedLoss:
    """SogCLR over a dense matrix, with one estimate of log s for each side; called as the losses of the library."""

    def __init__(self, temperature: float, estimates: dict[str, Estimate]) -> None:
        self._temperature, self._estimates = temperature, estimates

    def __call__(self, first: Tensor, second: Tensor, *, rows: Tensor, **_: Any) -> LossOutput:
        similarity = first @ second.T
        positive, negative = similarity.diagonal(), rows[:, None] != rows[None, :]
        temperature = torch.full_like(positive, self._temperature).detach()
        terms = []
        for side, anchors, one in zip(SIDES, (first, second), (similarity, similarity.T), strict=True):
            h = hardness(one, positive)
            with torch.no_grad():
                log_g = log_batch_mean(h, temperature, negative)
                log_s = self._estimates[side](rows, log_g, anchors, positive)
                w = weights(h, temperature, log_s, negative)
            terms.append(surrogate(w, h).mean())
        return LossOutput(terms[0] + terms[1])


def estimates(name: str, training: Training, temperature: float, refresh: int) -> dict[str, Estimate]:
    """For each side, from a name such as `gamma 0.8, drift`."""
    if name == "batch":
        return dict.fromkeys(SIDES, lambda rows, log_g, anchors, positive: log_g)
    if name.startswith("exact"):
        everything = Everything(training, refresh)
        of_batch = float(name.partition("gamma ")[2] or 0)
        others = dict(zip(SIDES, reversed(SIDES), strict=True))
        return {side: _exact(everything, others[side], temperature, of_batch) for side in SIDES}
    kind, _, number = name.removesuffix(", drift").partition(" ")
    value = float(number)
    gamma = {"gamma": constant(value), "sigmoid": lambda old, new: torch.sigmoid(old + value)}[kind]
    return {side: _remembered(name, gamma, training.samples) for side in SIDES}


def _exact(everything: Everything, other: str, temperature: float, of_batch: float) -> Estimate:
    """The batch has a share in it, or none."""

    def estimate(rows: Tensor, log_g: Tensor, anchors: Tensor, positive: Tensor) -> Tensor:
        candidates = everything.features(other)
        exponent = (anchors @ candidates.T - positive[:, None]) / temperature
        exponent[torch.arange(len(rows)), rows] = -math.inf
        log_mean = torch.logsumexp(exponent, dim=1) - math.log(len(candidates) - 1)
        if of_batch == 0:
            return log_mean
        return moving_average(log_mean, log_g, of_batch, torch.zeros_like(log_g, dtype=torch.bool))

    return estimate


def _remembered(name: str, gamma: Callable[[Tensor, Tensor], Tensor], samples: int) -> Estimate:
    memory = Memory(name, gamma, name.endswith(", drift"), torch.zeros(samples))
    visited = torch.zeros(samples, dtype=torch.bool)

    def estimate(rows: Tensor, log_g: Tensor, anchors: Tensor, positive: Tensor) -> Tensor:
        used = memory.visit(rows, log_g, ~visited[rows])
        visited[rows] = True
        return used

    return estimate


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of features, or of icons")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--temperature", type=float, default=0.03)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--wd", type=float, default=0.1)
    parser.add_argument("--pairs", type=int, help="of icons; all unless given")
    parser.add_argument("--refresh", type=int, default=50, help="steps between two looks at everything")
    parser.add_argument("--estimates", nargs="+", default=["batch", "gamma 0.8", "exact"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    options = parser.parse_args()
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for seed in options.seeds:
        for name in options.estimates:
            recall, pairs = measure(options, name, seed)
            found = (options.data.name, pairs, options.batch_size, options.epochs, options.lr, options.wd)
            writer.writerow((*found, options.temperature, name, seed, f"{recall:.4f}"))
            sys.stdout.flush()


def measure(options: argparse.Namespace, name: str, seed: int) -> tuple[float, int]:
    """Mean recall on the validation part, and the number of training pairs."""
    flags = {"batch_size": options.batch_size, "epochs": options.epochs, "lr": options.lr, "wd": options.wd}
    is_icons = (options.data / "pictures.npy").exists()
    data_set = DataSet("s", "", "icons" if is_icons else "features", {**flags, "pairs": options.pairs})
    run = Run("s", data_set, "sogclr", "sogclr", {}, seed, "validation")
    module = icon_training if is_icons else feature_training
    training = module.open_training(run, options.data)
    of_side = estimates(name, training, options.temperature, options.refresh)
    training.loss = EstimatedLoss(options.temperature, of_side)  # type: ignore[assignment]
    for _ in training.epochs():
        pass
    return module.retrieval(training, "validation")["mean_recall"], training.samples


if __name__ == "__main__":
    main()
