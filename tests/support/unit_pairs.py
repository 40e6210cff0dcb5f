"""Features for tests."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from isogclr.losses import ContrastiveLoss, LossOutput, SampleState


def unit_pairs(
    batch: int, dimension: int = 8, *, agreement: float = 0.5, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    """Images at random and texts that lie the given part of the way to them, [B, D] each, of unit length."""
    generator = torch.Generator().manual_seed(seed)
    images = normalize(torch.randn(batch, dimension, generator=generator, dtype=torch.float64), dim=1)
    noise = normalize(torch.randn(batch, dimension, generator=generator, dtype=torch.float64), dim=1)
    texts = normalize(agreement * images + (1 - agreement) * noise, dim=1)
    return images.to(dtype), texts.to(dtype)


def evaluate(
    loss: ContrastiveLoss,
    images: Tensor,
    texts: Tensor,
    *,
    rows: Tensor | None = None,
    state: SampleState | None = None,
    scale: float = 10.0,
    **options: object,
) -> tuple[LossOutput, Tensor, Tensor]:
    """Output and feature gradients; samples 0 … B−1 that were never visited, unless said otherwise."""
    images, texts = images.clone().requires_grad_(), texts.clone().requires_grad_()
    rows = torch.arange(len(images)) if rows is None else rows
    dtype = torch.float64 if images.dtype == torch.float64 else torch.float32
    state = loss.initial_state(len(images), dtype=dtype) if state is None else state
    options.setdefault("logit_scale", torch.tensor(scale, dtype=dtype))
    output = loss(images, texts, rows=rows, state=state, **options)
    output.loss.backward()
    return output, images.grad, texts.grad


def visited(
    loss: ContrastiveLoss, samples: int, dtype: torch.dtype = torch.float64, **columns: float
) -> SampleState:
    """State of samples that were visited once and hold the given values, both directions."""
    state = loss.initial_state(samples, dtype=dtype)
    for name, value in columns.items():
        for direction in ("image", "text"):
            state.columns[f"{direction}_{name}"].fill_(value)
    state.visits.fill_(1)
    return state
