"""LARS and SGD, what has no decay, and a warm-up that is counted in epochs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from timm.optim import Lars
from torch import nn
from torch.optim import SGD

from training.settings import OptimizerSettings
from training.steps.optimization import Optimization, create_optimizer

SETTINGS: dict[str, Any] = {
    **{"name": "lars", "lr": 0.5, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "momentum": 0.9},
    **{"scheduler": "cosine", "warmup_steps": 0, "skip_scheduler": False, "epochs_cooldown": None},
    **{"cooldown_power": 1.0, "cooldown_end": 0.0, "grad_clip_norm": None},
}


def settings(**changes: Any) -> OptimizerSettings:
    return OptimizerSettings(**{**SETTINGS, **changes})


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))


@pytest.mark.parametrize(("name", "kind"), [("lars", Lars), ("sgd", SGD)])
def test_gains_and_biases_have_no_decay(name: str, kind: type) -> None:
    optimizer = create_optimizer(model(), settings(name=name, nesterov=True))
    assert isinstance(optimizer, kind)
    without, decayed = optimizer.param_groups
    assert ([one.ndim for one in without["params"]], without["weight_decay"]) == ([1, 1, 1, 1], 0.0)
    assert ([one.ndim for one in decayed["params"]], decayed["weight_decay"]) == ([4, 2], 0.1)
    assert all((one["momentum"], one["nesterov"], one["lr"]) == (0.9, True, 0.5) for one in optimizer.param_groups)


def test_lars_adapts_the_rate_of_weights_alone() -> None:
    """The first step: weights move by lr · 0.001 · |w| whatever the gradient is, biases by lr · gradient."""
    layer = nn.Linear(4, 4)
    before = layer.weight.detach().clone(), layer.bias.detach().clone()
    optimizer = create_optimizer(layer, settings(weight_decay=1e-9))
    layer.weight.grad, layer.bias.grad = torch.full((4, 4), 1e3), torch.full((4,), 1e-3)
    optimizer.step()
    moved = (layer.weight.detach() - before[0]).norm()
    torch.testing.assert_close(moved, 0.5 * 0.001 * before[0].norm(), rtol=1e-3, atol=0)
    torch.testing.assert_close(before[1] - layer.bias.detach(), torch.full((4,), 0.5e-3))


def test_the_warm_up_is_as_long_as_its_epochs() -> None:
    optimization = Optimization(model(), settings(warmup_epochs=1.5), "fp32", torch.device("cpu"))
    optimization.plan(steps_per_epoch=8, epochs=4)
    rates = []
    for step in range(32):
        optimization.begin(step)
        rates.append(optimization.lr)
    assert rates[:12] == pytest.approx([0.5 * (step + 1) / 12 for step in range(12)])
    assert rates[12] == pytest.approx(0.5)
    assert rates[-1] < 0.01
