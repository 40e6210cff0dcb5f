"""A training whose data are in memory, with the losses of the library: the loop of the README, and no more.

AdamW, linear warm-up, cosine to 0, no augmentation. What a sample is and which networks look at it:
`feature_training.py` (heads on frozen features) and `icon_training.py` (small networks from scratch).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import torch
from grid import Run
from torch import Tensor, nn
from torch.nn.functional import normalize

from isogclr.config import PRESETS
from isogclr.losses import ContrastiveLoss, LossOutput, SampleState, loss_class

Rows = list[tuple[str, str, float]]  # epoch, metric, value
DEFAULTS = {"batch_size": 128, "epochs": 15, "lr": 1e-3, "wd": 0.1, "warmup": 200}
LOGIT_SCALE = {"clip": math.log(1 / 0.07), "cyclip": math.log(1 / 0.07), "siglip": math.log(10)}
MAX_LOGIT_SCALE = math.log(100)
ENCODED = 4096  # samples that go through a network at a time


class Material(Protocol):
    """The data of a run.

    Attributes:
        samples: pairs of the training part; their numbers are the rows.
    """

    samples: int

    def batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Pictures and captions of some training pairs, as the networks take them."""
        ...


class TwoTowers(nn.Module):
    """Pictures and captions to unit vectors of one space."""

    def __init__(self, image: nn.Module, text: nn.Module, loss: str) -> None:
        super().__init__()
        self.image, self.text = image, text
        self.log_scale = nn.Parameter(torch.tensor(LOGIT_SCALE.get(loss, 0.0)))
        self.logit_bias = nn.Parameter(torch.tensor(-10.0)) if loss == "siglip" else None

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        return normalize(self.image(images), dim=1), normalize(self.text(texts), dim=1)

    @torch.inference_mode()
    def encoded(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        """The same for many, in evaluation mode."""
        self.eval()
        first = torch.cat([normalize(self.image(part), dim=1) for part in images.split(ENCODED)])
        second = torch.cat([normalize(self.text(part), dim=1) for part in texts.split(ENCODED)])
        self.train()
        return first, second


def options_of(run: Run) -> dict[str, Any]:
    return {**DEFAULTS, **run.flags}


class Training:
    """One run. `epochs` trains, epoch after epoch; `steps` one epoch, step by step.

    Args:
        towers: with freshly drawn weights.
    """

    def __init__(self, run: Run, material: Material, towers: TwoTowers) -> None:
        chosen = options_of(run)
        self.material, self.towers = material, towers
        self.batch_size, self.number_of_epochs = chosen["batch_size"], chosen["epochs"]
        self.samples = material.samples
        self.steps_per_epoch = self.samples // self.batch_size
        self.loss = create_loss(run.loss, chosen, self.steps_per_epoch * self.number_of_epochs)
        self.table = self.loss.initial_state(self.samples)
        self.shared = self.loss.initial_shared()
        self.optimizer = _optimizer(towers, chosen["lr"], chosen["wd"])
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
            first, second = self.towers(*self.material.batch(rows))
            output = self.loss(
                first,
                second,
                logit_scale=self.towers.log_scale.exp(),
                logit_bias=self.towers.logit_bias,
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
                self.towers.log_scale.clamp_(0, MAX_LOGIT_SCALE)
            if output.state is not None:
                self.table.put(rows, output.state)
            if output.shared is not None:
                self.shared = output.shared
            self.step += 1

    def _set_rate(self) -> None:
        total = self.steps_per_epoch * self.number_of_epochs
        if self.step < self._warmup:
            rate = self._lr * (self.step + 1) / self._warmup
        else:
            done = (self.step - self._warmup) / max(1, total - self._warmup)
            rate = self._lr * 0.5 * (1 + math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = rate


def _optimizer(towers: nn.Module, lr: float, decay: float) -> torch.optim.Optimizer:
    """Without decay of gains, biases and the logit scale, as open_clip has it."""
    parameters = list(towers.parameters())
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": decay},
        {"params": [one for one in parameters if one.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.98), eps=1e-6, fused=True)


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
