"""Neighbours, words, ranks, projection and hard negatives against slow or other people's ways to get them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
import torch
from threadpoolctl import threadpool_limits

from isogclr import objective
from isogclr.report import commonness
from isogclr.report.negatives import hard_negatives
from isogclr.report.projection import project


def unit(rows: int, width: int = 16, seed: int = 0) -> npt.NDArray[np.float32]:
    values = np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def test_neighbour_similarity(monkeypatch: pytest.MonkeyPatch) -> None:
    features = unit(50)
    expected = []
    for row in range(50):
        others = sorted(
            (float(features[row] @ features[other]) for other in range(50) if other != row), reverse=True
        )
        expected.append(np.mean(others[:10]))
    for tile in (7, 512):
        monkeypatch.setattr(commonness, "_TILE_ROWS", tile)
        assert commonness.neighbour_similarity(features) == pytest.approx(np.array(expected), abs=1e-6)
    assert np.isnan(commonness.neighbour_similarity(features[:1])).all()


def test_word_frequency() -> None:
    found = commonness.word_frequency(["a cat, a cat", "A dog!", "cat_dog", "…"])
    assert found[0] == pytest.approx(np.sqrt((2 / 4) * (2 / 4)))  # a: 2 captions, cat: 2
    assert found[1] == pytest.approx(np.sqrt((2 / 4) * (2 / 4)))
    assert np.isnan(found[3])


def test_rank_correlation() -> None:
    """Over the pairs that are both finite; a constant has none, and nobody is warned."""
    generator = np.random.default_rng(1)
    first = generator.integers(0, 12, 300).astype(np.float64)
    second = first + generator.normal(size=300) * 4
    expected = scipy.stats.spearmanr(first, second).statistic
    assert commonness.rank_correlation(first, second) == pytest.approx(expected)
    second[:10] = np.nan
    expected = scipy.stats.spearmanr(first[10:], second[10:]).statistic
    assert commonness.rank_correlation(first, second) == pytest.approx(expected)
    assert np.isnan(commonness.rank_correlation(first, np.ones(300)))
    assert np.isnan(commonness.rank_correlation(first[:2], first[:2]))
    by_hand = np.array([1.0, 2.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0, 4.0])
    assert commonness.rank_correlation(*by_hand) == pytest.approx(4.5 / np.sqrt(4.5 * 5))  # ranks 1, 2.5, 2.5, 4


def test_bins_hold_equally_many() -> None:
    places = np.arange(100.0)
    centres, quartiles = commonness.binned_quantiles(places, 2 * places, bins=4)
    assert centres.tolist() == [12, 37, 62, 87]
    assert quartiles[:, 1].tolist() == [24, 74, 124, 174]


def test_projection_keeps_clusters_together() -> None:
    centres = unit(5, seed=1)
    labels = np.repeat(np.arange(5), 30)
    points = project(centres[labels] + 0.15 * unit(150, seed=2))
    assert points.shape == (150, 2)
    assert np.isfinite(points).all()
    distances = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(axis=1)] == labels).mean() > 0.97
    assert np.array_equal(points, project(centres[labels] + 0.15 * unit(150, seed=2)))


def test_the_number_of_threads_does_not_change_the_projection() -> None:
    with threadpool_limits(2):
        several = project(unit(60))
    with threadpool_limits(1):
        assert np.array_equal(several, project(unit(60)))


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 5, 6])
def test_projection_of_few_or_equal_points(rows: int) -> None:
    for features in (unit(rows), np.ones((rows, 8), np.float32), np.repeat(unit(2), rows, axis=0)):
        points = project(features)
        assert points.shape == (len(features), 2)
        assert points.dtype == np.float32
        assert np.isfinite(points).all()


def test_weights_of_hard_negatives_are_those_of_the_objective() -> None:
    images, texts = unit(40), unit(40, seed=3)
    temperatures = np.full(40, 0.07, np.float32)
    similarity = torch.from_numpy(images.astype(np.float64) @ texts.T.astype(np.float64))
    h = similarity - similarity.diagonal()[:, None]
    negative = ~torch.eye(40, dtype=torch.bool)
    tau = torch.full((40,), 0.07, dtype=torch.float64)
    log_mean = torch.logsumexp((h / tau[:, None]).masked_fill(~negative, -torch.inf), 1) - np.log(39)
    expected = objective.weights(h, tau, log_mean, negative)
    for anchor, found in zip((0, 7), hard_negatives(np.array([0, 7]), images, texts, temperatures, 5), strict=True):
        weights, order = expected[anchor].sort(descending=True)
        assert found.positions.tolist() == order[:5].tolist()
        assert found.weights == pytest.approx(weights[:5].numpy(), rel=1e-4)
        assert found.hardness == pytest.approx(h[anchor][order[:5]].numpy(), abs=1e-6)
        entropy = -(expected[anchor][negative[anchor]] * expected[anchor][negative[anchor]].log()).sum()
        assert found.effective == pytest.approx(float(entropy.exp()), rel=1e-3)


def test_a_tiny_temperature_does_not_overflow() -> None:
    found = hard_negatives(np.array([0]), unit(9), unit(9, seed=4), np.full(9, 1e-6, np.float32), 20)[0]
    assert len(found.positions) == 8
    assert found.weights[0] == pytest.approx(1.0)


def test_weight_of_the_own_class() -> None:
    features, classes = unit(30), np.arange(30, dtype=np.int32) % 3
    classes[5] = -1
    temperatures = np.full(30, 0.2, np.float32)
    whole = hard_negatives(np.array([4, 5]), features, features, temperatures, 29, classes)
    same = np.isin(whole[0].positions, np.flatnonzero(classes == classes[4]))
    assert whole[0].own_class == pytest.approx(whole[0].weights[same].sum())
    assert 0 < whole[0].own_class < 1
    assert np.isnan(whole[1].own_class)  # it has no class
    assert np.isnan(hard_negatives(np.array([4]), features, features, temperatures, 29)[0].own_class)
