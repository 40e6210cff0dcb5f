"""A small two-tower model trained on a fixed sequence of global batches, on one process or on many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from isogclr.distributed import Ranks
from isogclr.exchange import gather_updates
from isogclr.losses import ContrastiveLoss

SAMPLES = 24
INPUTS = 10


@dataclass(frozen=True)
class Case:
    """A loss by name, the options of its configuration, and how the batch is dealt out."""

    loss: str
    options: Mapping[str, Any]
    batch: tuple[int, ...]  # pairs of each rank; one process takes them all
    duplicates: bool = False
    dtype: str = "float64"  # of the model
    features: str | None = None  # dtype of the features, if another
    steps: int = 3
    directions: tuple[str, ...] = ("image", "text")  # one: the outputs of the towers are taken for two views


@dataclass
class Outcome:
    gradients: dict[str, Tensor]  # of the last step
    parameters: dict[str, Tensor]
    columns: dict[str, Tensor]
    visits: Tensor
    shared: dict[str, Tensor]
    values: list[float]  # loss of each step, on this rank
    bytes_received: list[int]


class TwoTowers(nn.Module):
    """Features of 8 entries as a loss wants them: of unit length but for its extra outputs, or as they come."""

    def __init__(self, unit_features: bool = True, extra_outputs: int = 0) -> None:
        super().__init__()
        self.unit_features, self.extra_outputs = unit_features, extra_outputs
        self.image = nn.Sequential(nn.Linear(INPUTS, 16), nn.Tanh(), nn.Linear(16, 8))
        self.text = nn.Sequential(nn.Linear(INPUTS, 16), nn.Tanh(), nn.Linear(16, 8))
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        image, text = self._finished(self.image(images)), self._finished(self.text(texts))
        return image, text, self.logit_scale.exp()

    def _finished(self, outputs: Tensor) -> Tensor:
        if not self.unit_features:
            return 2 * outputs  # around a length of 1
        features, extra = outputs.split([outputs.shape[1] - self.extra_outputs, self.extra_outputs], dim=1)
        return torch.cat([normalize(features, dim=1), extra], dim=1)


def train(case: Case, loss: ContrastiveLoss) -> Outcome:
    """The ranks of the default group together, or this process alone."""
    dtype = getattr(torch, case.dtype)
    ranks = Ranks()
    torch.manual_seed(0)
    model = TwoTowers(loss.unit_features, loss.extra_outputs).to(dtype)
    trained = DistributedDataParallel(model) if ranks.size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    table, shared = loss.initial_state(SAMPLES, dtype=dtype), loss.initial_shared(dtype=dtype)
    values, received = [], []
    for step, (images, texts, rows) in enumerate(_batches(case, dtype)):
        own = _own(case, ranks)
        before = loss.ranks.bytes_received if getattr(loss, "ranks", None) else 0
        features = trained(images[own], texts[own])
        output = loss(
            *(feature.to(getattr(torch, case.features or case.dtype)) for feature in features[:2]),
            logit_scale=features[2],
            rows=rows[own],
            state=table.take(rows[own]),
            shared=shared,
            step=step,
        )
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        values.append(output.loss.item())
        received.append((loss.ranks.bytes_received if getattr(loss, "ranks", None) else 0) - before)
        shared = output.shared
        if output.state is not None:
            table.put(*gather_updates(ranks, rows[own], output.state))
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return Outcome(
        gradients,
        {name: parameter.detach() for name, parameter in model.named_parameters()},
        dict(table.columns),
        table.visits,
        dict(shared.columns) if shared is not None else {},
        values,
        received,
    )


def _batches(case: Case, dtype: torch.dtype):
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(SAMPLES, 2, INPUTS, generator=generator, dtype=torch.float64).to(dtype)
    size = sum(case.batch)
    for _ in range(case.steps):
        if case.duplicates:  # drawn with replacement, from few
            rows = torch.randint(0, size // 2, (size,), generator=generator)
        else:
            rows = torch.randperm(SAMPLES, generator=generator)[:size]
        # Another view at each occurrence, so that it matters which one is stored.
        noise = torch.randn(size, 2, INPUTS, generator=generator, dtype=torch.float64).to(dtype)
        pairs = samples[rows] + 0.3 * noise
        yield pairs[:, 0], pairs[:, 1], rows


def _own(case: Case, ranks: Ranks) -> slice:
    if ranks.size == 1:
        return slice(None)
    start = sum(case.batch[: ranks.rank])
    return slice(start, start + case.batch[ranks.rank])
