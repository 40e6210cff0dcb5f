"""What of a checkpoint is not finite, by name."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from training.commits.finiteness import Finiteness, not_finite


class Tower(nn.Module):
    """With a mask that is infinite by design, as some text towers keep one, and statistics of batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("mask", torch.full((2,), -math.inf))


def content(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"state_dict": model.state_dict(), "optimizer": optimizer.state_dict(), "shared": {}}


@pytest.fixture
def trained() -> tuple[Tower, torch.optim.Optimizer, Finiteness]:
    model = Tower()
    optimizer = torch.optim.AdamW(model.parameters())
    model.norm(model.layer(torch.randn(3, 2))).sum().backward()
    optimizer.step()
    return model, optimizer, Finiteness(model)


def test_a_mask_is_no_fault(trained: tuple[Tower, torch.optim.Optimizer, Finiteness]) -> None:
    model, optimizer, finiteness = trained
    assert finiteness.broken(content(model, optimizer)) == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_every_part_is_looked_at(value: float, trained: tuple[Tower, torch.optim.Optimizer, Finiteness]) -> None:
    model, optimizer, finiteness = trained
    with torch.no_grad():
        model.layer.weight[1, 1] = value
    model.norm.running_var[0] = value  # type: ignore[index]
    optimizer.state[model.layer.bias]["exp_avg_sq"][0] = value
    found = content(model, optimizer) | {"shared": {"temperature": torch.tensor([value])}}
    assert finiteness.broken(found) == [
        "layer.weight",
        "norm.running_var",
        "optimizer/state/1/exp_avg_sq",
        "shared/temperature",
    ]


def test_weights_are_never_infinite_by_design() -> None:
    """A checkpoint that is loaded into the model later is not compared with these."""
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.fill_(math.nan)
    assert Finiteness(model).broken({"state_dict": model.state_dict()}) == ["weight"]


def test_what_is_no_floating_point_number() -> None:
    assert not_finite({"a": [torch.tensor([1]), "text", 3.0], "b": (torch.tensor(math.nan),)}) == ["b/0"]
    assert not_finite({}) == []
