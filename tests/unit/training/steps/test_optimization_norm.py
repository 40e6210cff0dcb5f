"""The norm of the gradients, which says whether a step was finite; a learning rate that rollbacks have lowered."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from training import params
from training.settings import OptimizerSettings
from training.steps.optimization import Optimization

CPU = torch.device("cpu")


def settings(*flags: str) -> OptimizerSettings:
    return params.parse(["--train-data", "x.tar", "--lr", "0.5", "--warmup", "0", *flags])[0].optimizer


def optimization(model: nn.Module, *flags: str, precision: str = "fp32") -> Optimization:
    return Optimization(model, settings(*flags), precision, CPU)


def with_gradient(*values: float, dtype: torch.dtype = torch.float32) -> nn.Module:
    model = nn.Linear(len(values), 1, bias=False).to(dtype)
    model.weight.grad = torch.tensor([values], dtype=dtype)
    return model


@pytest.mark.parametrize("flags", [(), ("--grad-clip-norm", "1.0")], ids=["free", "clipped"])
@pytest.mark.parametrize(
    ("values", "expected"), [((3.0, 4.0), 5.0), ((1.0, math.nan), math.nan), ((math.inf, 0.0), math.inf)]
)
def test_the_norm_is_that_before_clipping(flags: tuple[str, ...], values: Any, expected: float) -> None:
    found = optimization(with_gradient(*values), *flags)
    assert found.step()
    assert found.gradient_norm is not None
    assert float(found.gradient_norm) == pytest.approx(expected, nan_ok=True)


def test_large_gradients_in_half_precision_are_finite() -> None:
    """Their norm is beyond the largest number of fp16."""
    found = optimization(with_gradient(60000.0, 60000.0, dtype=torch.float16))
    found.step()
    assert float(found.gradient_norm or 0) == pytest.approx(84852.8, rel=1e-3)


def test_gradients_whose_squares_overflow_are_bad() -> None:
    """AdamW keeps them."""
    found = optimization(with_gradient(1e30, 1e30))
    found.step()
    assert not torch.isfinite(found.gradient_norm)  # type: ignore[arg-type]
    assert not torch.isfinite(found.optimizer.state_dict()["state"][0]["exp_avg_sq"]).all()


def test_no_gradients() -> None:
    found = optimization(nn.Linear(1, 1))
    found.step()
    assert found.gradient_norm is None


def test_a_scaler_is_lost_when_no_scale_helps() -> None:
    model = nn.Linear(1, 1, bias=False)
    found = optimization(model, precision="amp")
    states = []
    for _ in range(66):
        found.begin(0.0)
        found.backward(model(torch.full((1, 1), math.inf)).sum())
        assert not found.step()
        assert found.gradient_norm is None
        states.append(found.is_scaler_lost)
    assert states == [False] * 64 + [True] * 2
    found.begin(0.0)
    found.backward(model(torch.ones(1, 1)).sum())
    assert found.step()
    assert not found.is_scaler_lost


@pytest.mark.parametrize(
    ("flags", "steps", "expected"),
    [
        (("--lr-scheduler", "const"), (0.0, 99.0), (0.5, 0.5)),
        (("--lr-scheduler", "cosine"), (0.0, 50.0), (0.5, 0.25)),
        (
            ("--lr-scheduler", "const-cooldown", "--epochs-cooldown", "5", "--lr-cooldown-end", "0.1"),
            (0.0, 100.0),
            (0.5, 0.1),
        ),
        (("--skip-scheduler",), (0.0, 50.0), (0.5, 0.5)),
    ],
)
@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_a_factor_lowers_the_whole_schedule(flags: Any, steps: Any, expected: Any, factor: float) -> None:
    """Also over an optimizer that comes from a checkpoint with the learning rate before."""
    found = optimization(nn.Linear(1, 1), *flags)
    before = found.content()
    found.plan(10, 10, factor)
    found.load(before)
    for step, value in zip(steps, expected, strict=True):
        found.begin(step)
        assert found.lr == pytest.approx(factor * value)
