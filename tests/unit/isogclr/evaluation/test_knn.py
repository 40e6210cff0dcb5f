"""Votes of the nearest neighbours against plain loops and scikit-learn, and on hostile input."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from isogclr.errors import EvaluationError, InputError
from isogclr.evaluation.knn import knn_top1, knn_votes


def clusters(train: int, test: int, classes: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features of any length around the centre of their class."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, 6, generator=random)
    labels = torch.randint(classes, (train + test,), generator=random)
    features = centres[labels] + torch.randn(train + test, 6, generator=random)
    features *= 0.5 + 3 * torch.rand(train + test, 1, generator=random)
    return features[:train], labels[:train], features[train:], labels[train:]


def votes_by_loops(
    train: Tensor, labels: Tensor, test: Tensor, classes: int, k: int, t: float
) -> list[list[float]]:
    def cosine(a: list[float], b: list[float]) -> float:
        return math.fsum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))

    known, found = train.double().tolist(), []
    for one in test.double().tolist():
        nearest = sorted(((cosine(one, other), n) for n, other in enumerate(known)), reverse=True)[:k]
        votes = [0.0] * classes
        for similarity, place in nearest:
            votes[int(labels[place])] += math.exp(similarity / t)
        found.append([vote / math.exp(nearest[0][0] / t) for vote in votes])
    return found


@settings(max_examples=20, deadline=None)
@given(
    train=st.integers(1, 40),
    k=st.integers(1, 50),
    tile=st.integers(1, 12),
    temperature=st.sampled_from((0.05, 0.1, 1.0)),
    seed=st.integers(0, 999),
)
def test_votes_equal_plain_loops(train: int, k: int, tile: int, temperature: float, seed: int) -> None:
    features, labels, test, _ = clusters(train, 9, 4, seed)
    found = knn_votes(features, labels, test, 4, neighbours=k, temperature=temperature, tile=tile)
    expected = votes_by_loops(features, labels, test, 4, k, temperature)
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-4, atol=2e-6)


def test_accuracy_equals_that_of_scikit_learn() -> None:
    """It weighs by distance: on unit vectors 1 − similarity is half the squared distance."""
    train, labels, test, truth = clusters(300, 200, 5, 3)

    def weigh(distances: np.ndarray) -> np.ndarray:
        return np.exp((1 - distances**2 / 2) / 0.1)

    peer = KNeighborsClassifier(n_neighbors=20, algorithm="brute", weights=weigh)
    peer.fit(torch.nn.functional.normalize(train).numpy(), labels.numpy())
    expected = peer.score(torch.nn.functional.normalize(test).numpy(), truth.numpy())
    assert 0.3 < expected < 0.95
    assert knn_top1(train, labels, test, truth, neighbours=20) == pytest.approx(expected, abs=1e-12)


def test_weights_count_and_not_heads() -> None:
    """Two far neighbours of class 1 against a near one of class 0: the temperature decides."""
    train, labels = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.6, -0.8]]), torch.tensor([0, 1, 1])
    test, truth = torch.tensor([[5.0, 0.0]]), torch.tensor([0])
    assert knn_top1(train, labels, test, truth) == 1  # e^10 against 2 e^6
    assert knn_top1(train, labels, test, truth, temperature=1.0) == 0  # e against 2 e^0.6
    assert knn_top1(train, labels, test, truth, neighbours=1, temperature=1.0) == 1


def test_a_cold_temperature_stays_finite() -> None:
    train, labels, test, truth = clusters(30, 10, 3, 0)
    nearest_only = knn_top1(train, labels, test, truth, neighbours=1)
    assert knn_top1(train, labels, test, truth, temperature=1e-4) == nearest_only  # exp(1e4) is no float


def test_bad_input() -> None:
    train, labels, test, truth = clusters(10, 5, 3, 1)
    with pytest.raises(InputError, match="10 training features and 9 labels"):
        knn_top1(train, labels[:9], test, truth)
    with pytest.raises(InputError, match="0 training features"):
        knn_top1(train[:0], labels[:0], test, truth)
    with pytest.raises(InputError, match="labels reach from -1"):
        knn_top1(train, torch.where(labels == labels[0], -1, labels), test, truth)
    with pytest.raises(InputError, match="0 neighbours"):
        knn_top1(train, labels, test, truth, neighbours=0)
    with pytest.raises(InputError, match="temperature nan"):
        knn_top1(train, labels, test, truth, temperature=math.nan)
    with pytest.raises(EvaluationError, match="1 of 5 test features are not finite"):
        knn_top1(train, labels, test.clone().index_fill_(0, torch.tensor([2]), torch.nan), truth)
