"""Mistakes that other implementations make, one test each: it fails when the mistake is put in.

Those that only show with several ranks (positives from the wrong columns, a gradient of 1/W, temperatures that are
not exchanged) are in tests/distributed.
"""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from isogclr import objective
from isogclr.config import ISogCLRConfig, SogCLRConfig
from isogclr.losses import ISogCLRLoss, SogCLRLoss
from support.unit_pairs import evaluate, unit_pairs, visited


def separated_pairs(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and texts on the same axes: every negative has h = −1."""
    return torch.eye(batch, dtype=torch.float64), torch.eye(batch, dtype=torch.float64)


def test_the_positive_is_not_in_g() -> None:
    """With h = −1 everywhere g is exp(−1/τ); with the positive left in, it could not be below 1/(B−1)."""
    batch, temperature = 6, 0.05
    loss = SogCLRLoss(SogCLRConfig(temperature=temperature))
    output, *_ = evaluate(loss, *separated_pairs(batch))
    expected = torch.full((batch,), -1 / temperature, dtype=torch.float64)
    torch.testing.assert_close(output.state.columns["image_log_mean"], expected)
    torch.testing.assert_close(output.state.columns["text_log_mean"], expected)


def test_g_of_tau_has_the_right_sign_for_separated_samples() -> None:
    """All negatives equal: KL is 0, below ρ, so G = ρ > 0 and τ falls. With the positive in g it would rise."""
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5, temperature_init=0.05))
    output, *_ = evaluate(loss, *separated_pairs(6))
    torch.testing.assert_close(output.details["image_gradient"], torch.full((6,), 0.5, dtype=torch.float64))
    assert (output.state.columns["image_temperature"] < 0.05).all()


def test_the_first_visit_takes_s_from_the_batch_alone() -> None:
    images, texts = unit_pairs(6)
    without_memory, *_ = evaluate(SogCLRLoss(SogCLRConfig(gamma=1.0)), images, texts)
    first, *gradients = evaluate(SogCLRLoss(SogCLRConfig(gamma=0.3)), images, texts)
    for name, value in without_memory.state.columns.items():
        assert torch.equal(first.state.columns[name], value)
    assert torch.equal(first.details["image_weight_sum"], torch.ones(6, dtype=torch.float64))
    assert gradients[0].abs().max() > 0


def test_the_first_visit_is_known_for_each_sample() -> None:
    """New and known samples in one batch: only the known ones average."""
    loss = SogCLRLoss(SogCLRConfig(gamma=0.3))
    images, texts = unit_pairs(6)
    state = visited(loss, 6, log_mean=-2.0)
    state.visits[:3] = 0
    output, *_ = evaluate(loss, images, texts, state=state)
    batch_value, *_ = evaluate(SogCLRLoss(SogCLRConfig(gamma=1.0)), images, texts)
    g = batch_value.state.columns["image_log_mean"].exp()
    s = output.state.columns["image_log_mean"].exp()
    torch.testing.assert_close(s[:3], g[:3])
    torch.testing.assert_close(s[3:], 0.7 * math.exp(-2.0) + 0.3 * g[3:])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_do_not_fade_when_s_becomes_tiny(dtype: torch.dtype) -> None:
    """s = exp(−200) is below any ε, and below the smallest fp32 number: weights still sum to 1."""
    loss = SogCLRLoss(SogCLRConfig(temperature=0.005, gamma=0.5))
    images, texts = separated_pairs(6)
    state = loss.initial_state(6, dtype=dtype)
    for _ in range(30):
        output, image_gradient, _ = evaluate(loss, images.to(dtype), texts.to(dtype), state=state)
        state = output.state
    torch.testing.assert_close(state.columns["image_log_mean"], torch.full((6,), -200.0, dtype=dtype))
    torch.testing.assert_close(output.details["image_weight_sum"], torch.ones(6, dtype=dtype))
    # Anchor i pulls with weight 1 on its partner, and is pulled as another anchor's negative with weight 1/(B−1).
    assert image_gradient.norm(dim=1).min() > 2 / 6


def test_s_forgets_a_large_value() -> None:
    """A running maximum would stay; the average in logarithms comes down by (1−γ) a visit."""
    loss = SogCLRLoss(SogCLRConfig(temperature=0.05, gamma=0.5))
    state = visited(loss, 6, log_mean=30.0)
    for _ in range(200):
        state = evaluate(loss, *separated_pairs(6), state=state)[0].state
    torch.testing.assert_close(state.columns["text_log_mean"], torch.full((6,), -20.0, dtype=torch.float64))


def test_the_encoder_gradient_carries_the_factor_tau() -> None:
    """γ = 1: the gradient is that of mean τ_i log g_i, by autograd over the dense definitions, with mixed τ."""
    images, texts = unit_pairs(8)
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", gamma=1.0, rho=0.5))
    state = visited(loss, 8)
    generator = torch.Generator().manual_seed(3)
    for direction in ("image", "text"):
        tau = torch.empty(8, dtype=torch.float64).uniform_(0.01, 0.5, generator=generator)
        state.columns[f"{direction}_temperature"].copy_(tau)
    _, image_gradient, text_gradient = evaluate(loss, images, texts, state=state)

    leaves = [images.clone().requires_grad_(), texts.clone().requires_grad_()]
    similarity = leaves[0] @ leaves[1].T
    negative = ~torch.eye(8, dtype=torch.bool)
    total = torch.zeros((), dtype=torch.float64)
    for direction, matrix in (("image", similarity), ("text", similarity.T)):
        tau = state.columns[f"{direction}_temperature"]
        h = objective.hardness(matrix, similarity.diagonal())
        total = total + (tau * objective.log_batch_mean(h, tau, negative)).mean()
    total.backward()
    torch.testing.assert_close(image_gradient, leaves[0].grad)
    torch.testing.assert_close(text_gradient, leaves[1].grad)
    assert cosine_similarity(image_gradient.flatten(), leaves[0].grad.flatten(), dim=0) > 0.999999


def test_the_state_is_a_value_that_no_call_changes() -> None:
    """A step that a GradScaler skips must leave no trace: nothing is written but by the caller."""
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5))
    state = visited(loss, 6, temperature=0.07, log_mean=-1.0, momentum=0.2)
    before, attributes = copy.deepcopy(state), copy.deepcopy(loss.state_dict())
    first, *_ = evaluate(loss, *unit_pairs(6), state=state)
    second, *_ = evaluate(loss, *unit_pairs(6), state=state)
    for name, value in before.columns.items():
        assert torch.equal(state.columns[name], value), name
        assert torch.equal(first.state.columns[name], second.state.columns[name]), name
    assert torch.equal(state.visits, before.visits)
    assert loss.state_dict() == attributes == {}


def test_of_duplicates_the_first_occurrence_is_stored() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5))
    rows = torch.tensor([2, 0, 2, 1, 0, 2])
    table = loss.initial_state(3, dtype=torch.float64)
    output, *_ = evaluate(loss, *unit_pairs(6), rows=rows, state=table.take(rows))
    table.put(rows, output.state)
    for name, value in output.state.columns.items():
        assert torch.equal(table.columns[name], value[[1, 3, 0]]), name
        assert value[0] != value[2]
    assert table.visits.tolist() == [1, 1, 1]


def test_the_same_sample_is_nobody_s_own_negative() -> None:
    """Row 4 twice: for its anchors the other occurrence is no negative, and the count of negatives is B − 2."""
    images, texts = unit_pairs(5)
    rows = torch.tensor([4, 1, 4, 2, 3])
    output, *_ = evaluate(SogCLRLoss(SogCLRConfig(temperature=0.1)), images, texts, rows=rows)
    h = (images[0] @ texts.T - images[0] @ texts[0])[[1, 3, 4]]
    torch.testing.assert_close(output.state.columns["image_log_mean"][0], torch.exp(h / 0.1).mean().log())


def test_adam_corrects_its_bias_by_the_visits_of_the_sample() -> None:
    """At its first visit every sample moves by η · sign(G), however late in the run that is."""
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5, temperature_optimizer="adam", temperature_rate=0.001))
    late, *_ = evaluate(loss, *separated_pairs(6), step=10_000)
    expected = torch.full((6,), 0.01 - 0.001, dtype=torch.float64)
    torch.testing.assert_close(late.state.columns["image_temperature"], expected, rtol=1e-6, atol=0)
    state = visited(loss, 6, temperature=0.01, log_mean=-100.0)
    state.visits.fill_(1000)
    seen, *_ = evaluate(loss, *separated_pairs(6), state=state)
    moved = 0.01 - seen.state.columns["image_temperature"]
    bias_first, bias_second = 1 - 0.1**1001, 1 - 0.999**1001
    gradient = 0.5
    expected_move = 0.001 * (0.9 * gradient / bias_first) / math.sqrt(0.001 * gradient**2 / bias_second)
    torch.testing.assert_close(
        moved, torch.full((6,), min(expected_move, 0.005), dtype=torch.float64), rtol=1e-5, atol=0
    )


def test_nothing_that_is_as_long_as_the_data_set_is_held() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5))
    evaluate(loss, *unit_pairs(6), rows=torch.arange(6) + 10**9)
    assert not list(loss.parameters())
    assert not list(loss.buffers())
    assert not [value for value in vars(loss).values() if isinstance(value, torch.Tensor)]
