"""The pure functions, with numbers derived by hand."""

from __future__ import annotations

import math

import pytest
import torch

from isogclr import objective
from isogclr.schedules import Constant, CosineDecay


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_log_batch_mean_by_hand() -> None:
    """S = (0.5 | 0.3, 0.1), τ = 0.1: h = (−0.2, −0.4), g = (e⁻² + e⁻⁴)/2."""
    h = objective.hardness(tensor(0.5, 0.3, 0.1)[None], tensor(0.5))
    negative = torch.tensor([[False, True, True]])
    expected = math.log((math.exp(-2) + math.exp(-4)) / 2)
    assert objective.log_batch_mean(h, tensor(0.1), negative).item() == pytest.approx(expected)


def test_weights_by_hand() -> None:
    """At s = g the weights are softmax(h/τ); at s = 2g half of it."""
    h, negative = tensor(0.0, -0.2, -0.4)[None], torch.tensor([[False, True, True]])
    log_g = objective.log_batch_mean(h, tensor(0.1), negative)
    weights = objective.weights(h, tensor(0.1), log_g, negative)
    assert weights[0].tolist() == pytest.approx([0, 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))])
    half = objective.weights(h, tensor(0.1), log_g + math.log(2), negative)
    assert half.sum().item() == pytest.approx(0.5)


def test_moving_average_by_hand() -> None:
    first = torch.tensor([False, True])
    new = objective.moving_average(tensor(3.0, 3.0).log(), tensor(5.0, 5.0).log(), 0.25, first)
    assert new.exp().tolist() == pytest.approx([0.75 * 3 + 0.25 * 5, 5.0])


def test_moving_average_survives_what_no_float_can_hold() -> None:
    new = objective.moving_average(torch.tensor([400.0]), torch.tensor([-400.0]), 0.8, torch.tensor([False]))
    assert new.item() == pytest.approx(400 + math.log(0.2), rel=1e-6)


def test_temperature_gradient_is_the_derivative_of_the_objective() -> None:
    """d/dτ [τ log mean exp(h/τ) + τρ] by autograd, at s = g."""
    h = tensor(-0.3, 0.1, -0.7, 0.2)[None]
    negative = torch.ones_like(h, dtype=torch.bool)
    tau = tensor(0.2).requires_grad_()
    value = objective.robust_objective(tau, objective.log_batch_mean(h, tau, negative), 0.4)
    (expected,) = torch.autograd.grad(value, tau)
    log_g = objective.log_batch_mean(h, tau.detach(), negative)
    weighted = objective.surrogate(objective.weights(h, tau.detach(), log_g, negative), h)
    found = objective.temperature_gradient(weighted, tau.detach(), log_g, 0.4, 5.0)
    assert found.item() == pytest.approx(expected.item())


def test_temperature_gradient_is_clipped() -> None:
    found = objective.temperature_gradient(tensor(-9.0, 9.0), tensor(0.1, 0.1), tensor(0.0, 0.0), 1.0, 5.0)
    assert found.tolist() == [5.0, -5.0]


def test_projected_step() -> None:
    found = objective.projected_step(tensor(0.5, 0.006, 0.99), tensor(1.0, 1.0, -1.0), 0.03, 0.005, 1.0)
    assert found.tolist() == pytest.approx([0.47, 0.005, 1.0])


def test_momentum_by_hand() -> None:
    assert objective.momentum(tensor(2.0), tensor(-1.0), 0.9).item() == pytest.approx(0.1 * 2 - 0.9)


def test_adam_direction_of_a_constant_gradient_is_its_sign() -> None:
    """Whatever the number of visits, unbiased averages of a constant are the constant."""
    first, second = tensor(0.0, 0.0), tensor(0.0, 0.0)
    gradient = tensor(0.3, -0.7)
    for visit in range(1, 6):
        first = objective.momentum(first, gradient, 0.1)
        second = objective.momentum(second, gradient.square(), 0.001)
        found = objective.adam_direction(first, second, torch.full((2,), visit), 0.1, 0.001)
        assert found.tolist() == pytest.approx([1.0, -1.0], rel=1e-6)


def test_adam_direction_with_weight_one() -> None:
    assert objective.adam_direction(tensor(0.3), tensor(0.09), torch.tensor([4]), 1.0, 1.0).item() == pytest.approx(
        1
    )


def test_first_occurrence() -> None:
    rows = torch.tensor([5, 3, 5, -1, 3, 9, -1, 5])
    assert objective.first_occurrence(rows).tolist() == [True, True, False, False, False, True, False, False]
    assert objective.first_occurrence(rows[:0]).tolist() == []


def test_number_of_negatives() -> None:
    everyone = torch.tensor([5, 3, 5, -1, 3, 9, -1, 5])
    own = torch.tensor([5, 3, 9, 7, -1])
    assert objective.number_of_negatives(own, everyone).tolist() == [3, 4, 5, 6, 0]


def test_schedules() -> None:
    assert Constant(0.8)(0) == Constant(0.8)(10**6) == 0.8
    cosine = CosineDecay(start=1.0, end=0.2, decay_steps=100)
    assert [cosine(step) for step in (0, 50, 100, 1000)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert cosine(25) == pytest.approx(0.2 + 0.8 * (1 + math.cos(math.pi / 4)) / 2)
    assert all(cosine(step) >= cosine(step + 1) for step in range(120))
