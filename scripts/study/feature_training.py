"""Heads on frozen features, trained with the losses of the library, all in memory.

The paper's setting in small, at a tenth of the cost of `training.main` over shards of features: the loop is the one of
the README ("Use the losses in your own loop"), and nothing but heads and losses takes time. A head is two layers with a
GELU between; AdamW, linear warm-up, cosine to 0. A sample is a pair: a photo with five captions has five rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from feature_set import FeatureSet, Pairs
from grid import Run
from retrieval import recalls
from torch import Tensor, nn
from torch.nn.functional import normalize

from isogclr.config import PRESETS
from isogclr.losses import ContrastiveLoss, LossOutput, SampleState, loss_class

Rows = list[tuple[str, str, float]]  # epoch, metric, value
DEFAULTS = {"batch_size": 128, "epochs": 15, "lr": 1e-3, "wd": 0.1, "warmup": 200, "hidden": 256, "dim": 256}
LOGIT_SCALE = {"clip": math.log(1 / 0.07), "cyclip": math.log(1 / 0.07), "siglip": math.log(10)}
MAX_LOGIT_SCALE = math.log(100)
ENCODED = 4096  # pairs that go through the heads at a time


class TwoHeads(nn.Module):
    """Features of pictures and captions to unit vectors of one space."""

    def __init__(self, images: int, texts: int, hidden: int, dim: int, loss: str) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Linear(images, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.text = nn.Sequential(nn.Linear(texts, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.log_scale = nn.Parameter(torch.tensor(LOGIT_SCALE.get(loss, 0.0)))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0)) if loss == "siglip" else None

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return normalize(self.image(images), dim=1), normalize(self.text(texts), dim=1)


@dataclass(frozen=True)
class Material:
    """The data of a run as tensors."""

    images: Tensor
    texts: Tensor
    pairs: Mapping[str, Pairs]

    @classmethod
    def load(cls, folder: Path) -> Material:
        found = FeatureSet.load(folder)
        return cls(torch.from_numpy(found.images).float(), torch.from_numpy(found.texts).float(), found.pairs)

    def batch(self, split: str, rows: Tensor) -> tuple[Tensor, Tensor]:
        pairs = self.pairs[split]
        return self.images[pairs.image[rows]], self.texts[pairs.text[rows]]


class Training:
    """One run: `epochs()` trains, epoch after epoch."""

    def __init__(self, run: Run, material: Material) -> None:
        chosen = {**DEFAULTS, **run.data_set.flags, **run.setting}
        self.material, self.batch_size, self.number_of_epochs = material, chosen["batch_size"], chosen["epochs"]
        self.samples = len(material.pairs["train"].image)
        self.steps_per_epoch = self.samples // self.batch_size
        torch.manual_seed(run.seed)
        sizes = material.images.shape[1], material.texts.shape[1]
        self.model = TwoHeads(*sizes, chosen["hidden"], chosen["dim"], run.loss)
        self.loss = create_loss(run.loss, chosen, self.steps_per_epoch * self.number_of_epochs)
        self.table = self.loss.initial_state(self.samples)
        self.shared = self.loss.initial_shared()
        decayed = [one for one in self.model.parameters() if one.ndim > 1]
        others = [one for one in self.model.parameters() if one.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": chosen["wd"]}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=chosen["lr"], betas=(0.9, 0.98), eps=1e-6)
        self._lr, self._warmup = chosen["lr"], chosen["warmup"]
        self._order = torch.Generator().manual_seed(run.seed)
        self.step = 0

    def epochs(self) -> Iterator[int]:
        """Train; gives the number of epochs that are over."""
        for epoch in range(1, self.number_of_epochs + 1):
            for _ in self.steps():
                pass
            yield epoch

    def steps(self) -> Iterator[tuple[Tensor, LossOutput]]:
        """One epoch; gives the rows of each step and what the loss said, before the parameters change."""
        order = torch.randperm(self.samples, generator=self._order)
        for start in range(0, self.steps_per_epoch * self.batch_size, self.batch_size):
            rows = order[start : start + self.batch_size]
            self._set_rate()
            first, second = self.model(*self.material.batch("train", rows))
            output = self.loss(
                first,
                second,
                logit_scale=self.model.log_scale.exp(),
                logit_bias=self.model.logit_bias,
                rows=rows,
                state=self.table.take(rows),
                shared=self.shared,
                step=self.step,
            )
            self.optimizer.zero_grad()
            output.loss.backward()
            yield rows, output
            self.optimizer.step()
            with torch.no_grad():
                self.model.log_scale.clamp_(0, MAX_LOGIT_SCALE)
            self._remember(rows, output)
            self.step += 1

    def _remember(self, rows: Tensor, output: LossOutput) -> None:
        if output.state is not None:
            self.table.put(rows, output.state)
        if output.shared is not None:
            self.shared = output.shared

    def _set_rate(self) -> None:
        total = self.steps_per_epoch * self.number_of_epochs
        if self.step < self._warmup:
            rate = self._lr * (self.step + 1) / self._warmup
        else:
            done = (self.step - self._warmup) / max(1, total - self._warmup)
            rate = self._lr * 0.5 * (1 + math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    @torch.inference_mode()
    def encoded(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures and captions in the learned space."""
        first = [normalize(self.model.image(part), dim=1) for part in images.split(ENCODED)]
        second = [normalize(self.model.text(part), dim=1) for part in texts.split(ENCODED)]
        return torch.cat(first), torch.cat(second)


def create_loss(name: str, chosen: Mapping[str, Any], steps: int) -> ContrastiveLoss:
    """From flags such as `isogclr_rho`, as `training.main` has them."""
    kind: Any = loss_class(name)
    if kind.config_class is None:
        return kind()
    prefix = f"{name}_"
    options = {key.removeprefix(prefix): value for key, value in chosen.items() if key.startswith(prefix)}
    options = {**PRESETS.get(options.pop("preset", ""), {}), **options}
    if options.get("gamma_schedule") == "cosine":
        options["gamma_decay_steps"] = max(1, steps // 2)
    return kind(kind.config_class(**options))


def train_and_measure(run: Run, folder: Path) -> Rows:
    """All numbers of a run."""
    training = Training(run, Material.load(folder))
    rows: Rows = []
    for epoch in training.epochs():
        if run.curve or epoch == training.number_of_epochs:
            rows += [(str(epoch), name, value) for name, value in retrieval(training, run.split).items()]
    return rows + temperatures(training.table)


def retrieval(training: Training, split: str) -> dict[str, float]:
    """Recall among the pictures of a split and all their captions."""
    pairs = training.material.pairs[split]
    pictures, own = np.unique(pairs.image, return_inverse=True)
    images, texts = training.encoded(training.material.images[pictures], training.material.texts[pairs.text])
    return recalls(images, texts, torch.arange(len(images)), torch.from_numpy(own))


def temperatures(table: SampleState) -> Rows:
    """The distribution of what was learned, over the samples that were visited."""
    found: Rows = []
    for name, column in table.columns.items():
        if name.endswith("temperature"):
            values = column[table.visits > 0].double()
            shares = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
            for share, value in zip(shares.tolist(), torch.quantile(values, shares).tolist(), strict=True):
                found.append(("", f"{name}_q{round(100 * share):02d}", value))
    return found
