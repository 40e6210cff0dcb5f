"""The tiled passes: independent of the tile, small in what they keep, exact at the edges."""

from __future__ import annotations

import pytest
import torch

from isogclr import objective
from isogclr.config import ISogCLRConfig, SogCLRConfig
from isogclr.losses import ISogCLRLoss, SogCLRLoss, kernel
from support.unit_pairs import evaluate, unit_pairs, visited


@pytest.mark.parametrize("tile_rows", [1, 2, 5, 12, 13, 1000])
def test_the_tile_does_not_matter(tile_rows: int) -> None:
    images, texts = unit_pairs(13)
    rows = torch.tensor([0, 1, 2, 3, 1, 5, 6, 7, 8, 9, 10, 3, 12])
    config = ISogCLRConfig.preset("paper", rho=1.0, temperature_init=0.01)
    expected, *gradients = evaluate(ISogCLRLoss(config), images, texts, rows=rows)
    tiled = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0, temperature_init=0.01, tile_rows=tile_rows))
    output, *found = evaluate(tiled, images, texts, rows=rows)
    torch.testing.assert_close(output.loss, expected.loss, rtol=1e-12, atol=0)
    for ours, exact in zip(found, gradients, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-10, atol=1e-14)
    for name, value in expected.state.columns.items():
        torch.testing.assert_close(output.state.columns[name], value, rtol=1e-10, atol=1e-14)


def test_the_value_and_gradient_are_those_of_the_dense_definitions() -> None:
    """`objective` on full matrices, differentiated by autograd, with s from an earlier visit."""
    images, texts = unit_pairs(9)
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0, gamma=0.6, tile_rows=4))
    state = visited(loss, 9, temperature=0.08, log_mean=-3.0, momentum=0.1)
    output, *gradients = evaluate(loss, images, texts, state=state)

    leaves = [images.clone().requires_grad_(), texts.clone().requires_grad_()]
    similarity = leaves[0] @ leaves[1].T
    negative = ~torch.eye(9, dtype=torch.bool)
    total = torch.zeros((), dtype=torch.float64)
    for direction, matrix in (("image", similarity), ("text", similarity.T)):
        tau = state.columns[f"{direction}_temperature"]
        h = objective.hardness(matrix, similarity.diagonal())
        log_g = objective.log_batch_mean(h.detach(), tau, negative)
        log_s = objective.moving_average(state.columns[f"{direction}_log_mean"], log_g, 0.6, state.visits == 0)
        w = objective.weights(h.detach(), tau, log_s, negative)
        total = total + objective.surrogate(w, h).mean()
        torch.testing.assert_close(output.state.columns[f"{direction}_log_mean"], log_s)
        torch.testing.assert_close(output.details[f"{direction}_weight_sum"], w.sum(dim=1))
    total.backward()
    torch.testing.assert_close(output.loss.detach(), total.detach())
    torch.testing.assert_close(gradients[0], leaves[0].grad)
    torch.testing.assert_close(gradients[1], leaves[1].grad)


def test_backward_scales_by_what_it_is_given() -> None:
    images, texts = (features.requires_grad_() for features in unit_pairs(6))
    loss = SogCLRLoss(SogCLRConfig(temperature=0.1))
    output = loss(images, texts, rows=torch.arange(6), state=loss.initial_state(6, dtype=torch.float64))
    (once,) = torch.autograd.grad(output.loss, images, retain_graph=True)
    (scaled,) = torch.autograd.grad(-3.5 * output.loss, images)
    torch.testing.assert_close(scaled, -3.5 * once)


def test_autograd_keeps_two_gradients_and_nothing_else() -> None:
    """Not one tensor of B × B, and in all 2·B·D numbers."""
    batch, dimension, kept = 64, 4, []
    images, texts = (features.requires_grad_() for features in unit_pairs(batch, dimension))
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0))
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor.numel()) or tensor, lambda t: t
    ):
        loss(images, texts, rows=torch.arange(batch), state=loss.initial_state(batch, dtype=torch.float64))
    assert kept == [batch * dimension] * 2


def test_no_tensor_is_larger_than_a_tile() -> None:
    """Every allocation of a step, seen at the operators."""
    batch, rows = 96, 8
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            sizes.extend(
                t.numel() for t in (result if isinstance(result, tuple) else [result]) if torch.is_tensor(t)
            )
            return result

    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0, tile_rows=rows))
    images, texts = (features.requires_grad_() for features in unit_pairs(batch, 4))
    state = loss.initial_state(batch, dtype=torch.float64)
    with Watch():
        loss(images, texts, rows=torch.arange(batch), state=state).loss.backward()
    assert max(sizes) == rows * batch


def test_the_tile_is_chosen_from_the_batch() -> None:
    assert kernel._tile_rows(torch.empty(8192, 1)) == 512  # 16 MiB
    assert kernel._tile_rows(torch.empty(2048, 1)) == 2048
    assert kernel._tile_rows(torch.empty(2**23, 1, device="meta")) >= 1


def test_without_gradients_there_is_no_second_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("gradients were computed")

    loss = SogCLRLoss()
    monkeypatch.setattr(kernel, "gradients", fail)
    images, texts = unit_pairs(4)
    state = loss.initial_state(4, dtype=torch.float64)
    with torch.no_grad():
        output = loss(images.requires_grad_(), texts, rows=torch.arange(4), state=state)
    assert not output.loss.requires_grad
    with pytest.raises(AssertionError, match="gradients were computed"):
        loss(images, texts, rows=torch.arange(4), state=state)


def test_gradient_of_one_tower_only() -> None:
    """A locked tower: its features need no gradient, those of the other are the same as ever."""
    images, texts = unit_pairs(6)
    loss = SogCLRLoss(SogCLRConfig(temperature=0.1))
    _, expected, _ = evaluate(loss, images, texts)
    leaf = images.clone().requires_grad_()
    loss(leaf, texts, rows=torch.arange(6), state=loss.initial_state(6, dtype=torch.float64)).loss.backward()
    assert torch.equal(leaf.grad, expected)
