"""How wrong is log s, as a step uses it, against the mean over all data? By γ, batch and epoch, from one run each.

    python scripts/study/age_of_s.py DATA/flickr8k-frozen --batch-size 128 --epochs 15 >> docs/study/age_of_s.csv
    python scripts/study/age_of_s.py DATA/icons --pairs 50000 --batch-size 64 --epochs 10 >> docs/study/age_of_s.csv

A run (SogCLR, fixed τ, no memory) makes a path of features. Along that path several ways of remembering are kept
side by side: each sees the same batch estimates log g_i at the same visits, and none of them changes the path. At
some steps of each epoch the exact log g_i of the batch's samples over all training pairs is computed, and the error
of each is written down. Exact means in evaluation mode: dropout is a part of a batch's error, as it is in
training, and the bias that it brings is apart from the variance.

    gamma          the paper's moving average, eq. 12; 1 keeps no memory, and its error is that of a batch
    gamma, drift   the same, but the mean of log g over recent batches is taken off when s is stored and added later
    sigmoid        γ_i = sigmoid(log g_i − log s_i): a visit that finds more than is remembered counts more
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import feature_training
import icon_training
import torch
from grid import DataSet, Run
from memory_training import Training
from torch import Tensor

GAMMAS = (1.0, 0.95, 0.9, 0.8, 0.5, 0.2)
RECENT = 0.05  # weight of a batch in the mean of recent ones
LOOKS = 3  # per epoch
COLUMNS = ("data_set", "batch_size", "epochs", "temperature", "seed", "epoch", "side", "memory", "bias", "variance")


@dataclass
class Memory:
    """One way of remembering log s of every sample, of one side."""

    name: str
    gamma: Callable[[Tensor, Tensor], Tensor]  # (log s as it would be used, log g) → γ of each sample
    follows_drift: bool
    stored: Tensor
    recent: float = math.nan

    def visit(self, rows: Tensor, log_g: Tensor, is_first: Tensor) -> Tensor:
        """log s as the step uses it; remembers it."""
        mean = log_g.mean().item()
        self.recent = mean if math.isnan(self.recent) else (1 - RECENT) * self.recent + RECENT * mean
        level = self.recent if self.follows_drift else 0.0
        old = self.stored[rows] + level
        gamma = self.gamma(old, log_g)
        new = torch.logaddexp(torch.log1p(-gamma) + old, gamma.log() + log_g)
        used = torch.where(is_first, log_g, new)
        self.stored[rows] = used - level
        return used


@dataclass
class Side:
    """One direction: its memories and the errors they made, by epoch."""

    memories: list[Memory]
    errors: dict[tuple[int, str], list[Tensor]] = field(default_factory=lambda: defaultdict(list))


def memories(samples: int) -> list[Memory]:
    found = []
    for gamma in GAMMAS:
        for drift in (False, True) if gamma < 1 else (False,):
            name = f"gamma {gamma:g}" + (", drift" if drift else "")
            found.append(Memory(name, constant(gamma), drift, torch.zeros(samples)))
    for drift in (False, True):
        name = "sigmoid" + (", drift" if drift else "")
        found.append(Memory(name, lambda old, new: torch.sigmoid(new - old), drift, torch.zeros(samples)))
    return found


def constant(gamma: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda old, new: torch.full_like(new, gamma)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path, help="folder of features")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--pairs", type=int, help="of icons; all unless given")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    flags = {"batch_size": options.batch_size, "epochs": options.epochs, "lr": options.lr, "pairs": options.pairs}
    setting = {"sogclr_temperature": options.temperature, "sogclr_gamma": 1.0}
    is_icons = (options.data / "pictures.npy").exists()
    data_set = DataSet("age", "", "icons" if is_icons else "features", flags)
    run = Run("age", data_set, "sogclr", "sogclr", setting, options.seed, "validation")
    training = (icon_training if is_icons else feature_training).open_training(run, options.data)
    sides = {name: Side(memories(training.samples)) for name in ("image", "text")}
    visited = torch.zeros(training.samples, dtype=torch.bool)
    for epoch in range(1, options.epochs + 1):
        follow(training, epoch, sides, visited, options.temperature)
        print(f"epoch {epoch}", file=sys.stderr, flush=True)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    head = (options.data.name, options.batch_size, options.epochs, options.temperature, options.seed)
    for side, one in sides.items():
        for (epoch, name), errors in one.errors.items():
            error = torch.cat(errors)
            writer.writerow((*head, epoch, side, name, f"{error.mean():.4f}", f"{error.var():.4f}"))


def follow(training: Training, epoch: int, sides: dict[str, Side], visited: Tensor, temperature: float) -> None:
    """One epoch along the path."""
    looks = {round((number + 0.5) * training.steps_per_epoch / LOOKS) for number in range(LOOKS)}
    for number, (rows, output) in enumerate(training.steps()):
        assert output.state is not None
        exact = exact_log_means(training, rows, temperature) if number in looks else None
        for name, side in sides.items():
            log_g = output.state.columns[f"{name}_log_mean"]  # γ is 1: the estimate of the batch
            for memory in side.memories:
                used = memory.visit(rows, log_g, ~visited[rows])
                if exact is not None:
                    side.errors[epoch, memory.name].append(used - exact[name])
        visited[rows] = True


@torch.inference_mode()
def exact_log_means(training: Training, rows: Tensor, temperature: float) -> dict[str, Tensor]:
    """log g over all training pairs but the own one, for both sides of these pairs."""
    everything = training.material.batch(torch.arange(training.samples))
    images, texts = training.towers.encoded(*everything)
    positive = (images[rows] * texts[rows]).sum(dim=1)
    found = {}
    for name, own, others in (("image", images, texts), ("text", texts, images)):
        exponent = (own[rows] @ others.T - positive[:, None]) / temperature
        exponent[torch.arange(len(rows)), rows] = -math.inf
        found[name] = torch.logsumexp(exponent, dim=1) - math.log(training.samples - 1)
    return found


if __name__ == "__main__":
    main()
