"""The kernel with one direction: two views of the same pictures, against plain loops and against two directions."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from isogclr.losses import kernel
from isogclr.losses.kernel import Exponent, Pairs
from reference import views as reference
from support.unit_pairs import unit_pairs

DISTINCT = [0, 1, 2, 3, 4, 5]
DUPLICATES = [0, 1, 0, 3, 1, 0]
PADDED = [0, 1, 2, 3, -1, -1]
ROWS = pytest.mark.parametrize("rows", [DISTINCT, DUPLICATES, PADDED])
TILES = pytest.mark.parametrize("tile_rows", [None, 1, 3])


def views_of(first: Tensor, second: Tensor, rows: list[int]) -> Pairs:
    """One rank that has all of them."""
    every, both = torch.cat([first, second]), torch.tensor(rows * 2)
    return Pairs((every,), (every,), both, both, 0, positives_only=False, mask_positives=True)


def exponent_of(anchors: int, seed: int = 5) -> Exponent:
    """Other temperatures and levels for every view, as of a loss in the middle of a training."""
    generator = torch.Generator().manual_seed(seed)
    temperature = torch.empty(anchors, dtype=torch.float64).uniform_(0.05, 0.5, generator=generator)
    level = torch.empty(anchors, dtype=torch.float64).uniform_(-0.5, 1.5, generator=generator)
    return Exponent(temperature.reciprocal(), level)


def without_padding(exponent: Exponent, rows: list[int]) -> Exponent:
    """Padding is out of reach as an anchor: the caller says so, as the losses do."""
    present = torch.tensor(rows * 2) >= 0
    return exponent._replace(level=torch.where(present, exponent.level, -kernel.EXCLUDED))


def weights_of(features: Tensor, rows: list[int], exponent: Exponent) -> np.ndarray:
    """w_ij = exp((S_ij − c_i)/τ_i) over the negatives, with loops."""
    views, found = features.numpy(), np.zeros((len(features), len(features)))
    for i in range(len(features)):
        for j in reference.negatives(i, rows * 2):
            found[i, j] = math.exp(
                (float(views[i] @ views[j]) - float(exponent.level[i])) * float(exponent.inverse_temperature[i])
            )
    return found


def gradients_of(pairs: Pairs, exponent: Exponent, weight: Tensor, tile_rows: int | None) -> Tensor:
    """Both passes, so that similarities are kept from the first one where they fit."""
    inverse = exponent.inverse_temperature[pairs.own]
    _, kept = kernel.statistics(pairs, [inverse], tile_rows)
    (found,) = kernel.gradients(pairs, [exponent], [weight], kept, tile_rows)
    return found


@ROWS
@TILES
def test_statistics(rows: list[int], tile_rows: int | None) -> None:
    pairs = views_of(*unit_pairs(6), rows)
    temperature = exponent_of(12).inverse_temperature.reciprocal()
    (found,), _ = kernel.statistics(pairs, [temperature.reciprocal()], tile_rows)
    for i in range(12):
        if reference.negatives(i, rows * 2):
            maximum, total, mean = reference.softmax_statistics(
                pairs.own_features[0].numpy(), rows * 2, i, float(temperature[i])
            )
            assert float(found.maximum[i]) == pytest.approx(maximum, rel=1e-12)
            assert float(found.log_sum[i]) == pytest.approx(math.log(total), rel=1e-12, abs=1e-12)
            assert float(found.mean[i]) == pytest.approx(mean, rel=1e-12)


def test_an_anchor_has_all_views_of_other_pictures_as_negatives() -> None:
    """2(B − 1) of them: at an infinite temperature the sum counts them."""
    pairs = views_of(*unit_pairs(6), DISTINCT)
    (found,), _ = kernel.statistics(pairs, [torch.full((12,), 1e-12, dtype=torch.float64)])
    torch.testing.assert_close(found.log_sum.exp(), torch.full((12,), 10.0, dtype=torch.float64))


@ROWS
@TILES
def test_gradients(rows: list[int], tile_rows: int | None) -> None:
    pairs = views_of(*unit_pairs(6), rows)
    exponent = without_padding(exponent_of(12), rows)
    weights = weights_of(pairs.own_features[0], rows, exponent)
    expected = reference.weighted_gradient(pairs.own_features[0].numpy(), rows * 2, weights)
    found = gradients_of(pairs, exponent, torch.from_numpy(weights.sum(axis=1)), tile_rows)
    present = pairs.own_rows >= 0
    torch.testing.assert_close(found[present], torch.from_numpy(expected)[present], rtol=1e-11, atol=1e-12)


@ROWS
def test_gradients_are_those_of_the_surrogate(rows: list[int]) -> None:
    """Autograd of Σ_ij w_ij h_ij with w held constant."""
    pairs = views_of(*unit_pairs(6), rows)
    exponent = without_padding(exponent_of(12), rows)
    weights = torch.from_numpy(weights_of(pairs.own_features[0], rows, exponent))
    leaf = pairs.own_features[0].clone().requires_grad_()
    positive = (leaf * leaf.roll(6, dims=0)).sum(dim=1)
    (weights * (leaf @ leaf.T - positive[:, None])).sum().backward()
    found = gradients_of(pairs, exponent, weights.sum(dim=1), tile_rows=5)
    present = pairs.own_rows >= 0
    torch.testing.assert_close(found[present], leaf.grad[present], rtol=1e-11, atol=1e-12)


@ROWS
@TILES
def test_two_ranks_are_one(rows: list[int], tile_rows: int | None) -> None:
    """Three pictures each. All views stand in order of rank, the first views of a rank before its second ones."""
    first, second = unit_pairs(6)
    exponent = without_padding(exponent_of(12), rows)
    whole = views_of(first, second, rows)
    weight = torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (statistics,), _ = kernel.statistics(whole, [exponent.inverse_temperature], tile_rows)
    gradient = gradients_of(whole, exponent, weight, tile_rows)
    order = torch.tensor([0, 1, 2, 6, 7, 8, 3, 4, 5, 9, 10, 11])
    everyone, all_rows = whole.own_features[0][order], whole.own_rows[order]
    gathered = Exponent(exponent.inverse_temperature[order], exponent.level[order])
    for offset in (0, 6):
        own = slice(offset, offset + 6)
        pairs = Pairs((everyone[own],), (everyone,), all_rows[own], all_rows, offset, False, mask_positives=True)
        torch.testing.assert_close(pairs.positives()[torch.argsort(order)], whole.positives())
        (found,), _ = kernel.statistics(pairs, [gathered.inverse_temperature[own]], tile_rows)
        for ours, expected in zip(found, statistics, strict=True):
            torch.testing.assert_close(ours, expected[order[own]])
        ours = gradients_of(pairs, gathered, weight[order[own]], tile_rows)
        torch.testing.assert_close(ours, gradient[order[own]])


@pytest.mark.parametrize("rows", [DISTINCT, DUPLICATES])  # two directions on one rank know no padding
@TILES
def test_two_directions_fed_with_both_orders_are_the_same(rows: list[int], tile_rows: int | None) -> None:
    """(a ‖ b) as the first features, (b ‖ a) as the second, and the rows twice."""
    first, second = unit_pairs(6)
    exponent = without_padding(exponent_of(12), rows)
    views = views_of(first, second, rows)
    weight = torch.rand(12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def turned(values: Tensor) -> Tensor:
        return values.roll(6, dims=0)

    sides = (views.own_features[0], turned(views.own_features[0]))
    pairs = Pairs(sides, sides, views.own_rows, views.own_rows, 0, positives_only=False, mask_positives=True)
    both = [exponent, Exponent(turned(exponent.inverse_temperature), turned(exponent.level))]
    found, kept = kernel.statistics(pairs, [one.inverse_temperature for one in both], tile_rows)
    (expected,), _ = kernel.statistics(views, [exponent.inverse_temperature], tile_rows)
    for of_first, of_second, of_views in zip(*found, expected, strict=True):
        torch.testing.assert_close(of_first, of_views)
        torch.testing.assert_close(of_second, turned(of_views))
    of_first, of_second = kernel.gradients(pairs, both, [weight, turned(weight)], kept, tile_rows)
    expected_gradient = gradients_of(views, exponent, weight, tile_rows)
    torch.testing.assert_close(of_first, expected_gradient)
    torch.testing.assert_close(of_second, turned(expected_gradient))
    torch.testing.assert_close(pairs.positives(), views.positives())


def results_of(pairs: Pairs, tile_rows: int | None) -> list[Tensor]:
    """Statistics and gradients."""
    exponent = exponent_of(12)
    (found,), _ = kernel.statistics(pairs, [exponent.inverse_temperature], tile_rows)
    return [*found, gradients_of(pairs, exponent, torch.ones(12, dtype=torch.float64), tile_rows)]


@pytest.mark.parametrize("tile_rows", [None, 1, 3, 5, 7])
def test_diagonals_are_what_comparing_rows_would_exclude(tile_rows: int | None) -> None:
    compared = views_of(*unit_pairs(6), DISTINCT)
    diagonals = replace(compared, positives_only=True)
    torch.testing.assert_close(results_of(diagonals, tile_rows), results_of(compared, tile_rows), rtol=0, atol=0)


@ROWS
def test_a_symmetric_product_is_made_once(rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Long features: their similarities are kept, in blocks whose lower half is a copy."""
    pairs = views_of(*unit_pairs(6, 16), rows)
    expected = results_of(pairs, tile_rows=1)
    made, multiply = [], torch.mm

    def watched(left: Tensor, right: Tensor, out: Tensor) -> Tensor:
        made.append((right.shape[1] == 16, out.numel()))
        return multiply(left, right, out=out)

    monkeypatch.setattr(torch, "mm", watched)
    monkeypatch.setattr(kernel, "SYMMETRIC_ELEMENTS", 0)
    monkeypatch.setitem(kernel.TILE_ELEMENTS, "cpu", 60)  # tiles of 5 anchors
    torch.testing.assert_close(results_of(pairs, tile_rows=None), expected, rtol=1e-12, atol=1e-13)
    similarities = sum(elements for is_gradient, elements in made if not is_gradient)
    assert similarities == 2 * 12 * 12 * 5 // 8  # once in `results_of` for the statistics, once for the gradients
