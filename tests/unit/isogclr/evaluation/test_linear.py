"""The linear classifier on features: its schedule, its steps against plain torch, its figures, hostile input."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from isogclr.errors import ConfigError, EvaluationError
from isogclr.evaluation.linear import (
    LinearSettings,
    cached_batches,
    epoch_order,
    learning_rate,
    measure_classifier,
    train_classifier,
)

QUICK = LinearSettings(epochs=10, batch_size=64, lr=1.0)


def clusters(pictures: int, classes: int, seed: int, noise: float = 1.0) -> tuple[Tensor, Tensor]:
    centres = torch.randn(classes, 8, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(pictures) % classes
    return centres[labels] + noise * torch.randn(pictures, 8, generator=random), labels


def fitted(settings: LinearSettings, classes: int = 4) -> nn.Linear:
    features, labels = clusters(400, classes, 1)
    return train_classifier(cached_batches(features, labels, settings), 8, classes, settings)


def test_the_papers_settings() -> None:
    """Section 6.1: batch 256, 100 epochs, learning rate 30, times 0.2 at 40, 60 and 80."""
    settings = LinearSettings()
    assert (settings.epochs, settings.batch_size, settings.lr) == (100, 256, 30.0)
    rates = [learning_rate(epoch, settings) for epoch in range(100)]
    assert [epoch for epoch in range(1, 100) if rates[epoch] != rates[epoch - 1]] == [40, 60, 80]
    assert [rates[epoch] for epoch in (0, 40, 60, 99)] == pytest.approx([30, 6, 1.2, 0.24])


def test_a_shorter_training_keeps_its_shape() -> None:
    settings = LinearSettings(epochs=10, lr=1.0)
    rates = [learning_rate(epoch, settings) for epoch in range(10)]
    assert rates == pytest.approx([1] * 4 + [0.2] * 2 + [0.04] * 2 + [0.008] * 2)


def test_steps_are_those_of_nesterov_momentum() -> None:
    """One picture per step, by hand: v ← 0.9 v + g, w ← w − lr (g + 0.9 v)."""
    settings = LinearSettings(epochs=2, batch_size=1, lr=0.5, decay_at=(0.5,))
    features, labels = clusters(3, 3, 5)
    seen: list[int] = []
    batches = cached_batches(features, labels, settings)
    found = train_classifier(batches, 8, 3, settings, after_epoch=lambda done, _: seen.append(done))
    assert seen == [1, 2]

    weight = 0.01 * torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    weight = torch.cat((weight, torch.zeros(3, 1)), dim=1).requires_grad_()
    velocity = torch.zeros_like(weight)
    for epoch in range(2):
        for (place,) in epoch_order(3, epoch, settings):
            one = torch.cat((features[place], torch.ones(1)))
            gradient = torch.autograd.grad(cross_entropy(one @ weight.T, labels[place]), weight)[0]
            velocity = 0.9 * velocity + gradient
            step = learning_rate(epoch, settings) * (gradient + 0.9 * velocity)
            weight = (weight - step).detach().requires_grad_()
    torch.testing.assert_close(torch.cat((found.weight, found.bias[:, None]), dim=1), weight, rtol=1e-5, atol=1e-6)


def test_it_finds_what_logistic_regression_finds() -> None:
    features, labels = clusters(400, 4, 1)
    test, truth = clusters(400, 4, 2)
    metrics, _ = measure_classifier(fitted(LinearSettings(epochs=30, lr=1.0)), test, truth, [100] * 4)
    peer = LogisticRegression(C=1e4, max_iter=1000).fit(features.numpy(), labels.numpy())
    assert metrics["acc1"] == pytest.approx(peer.score(test.numpy(), truth.numpy()), abs=0.02)
    assert metrics.keys() == {"acc1", "mean_per_class_recall"}  # fewer than five classes, no tail


def test_one_seed_one_result() -> None:
    state = torch.get_rng_state()
    first, again, other = (
        fitted(QUICK),
        fitted(QUICK),
        fitted(LinearSettings(epochs=10, batch_size=64, lr=1.0, seed=1)),
    )
    assert torch.equal(first.weight, again.weight)
    assert torch.equal(first.bias, again.bias)
    assert not torch.equal(first.weight, other.weight)
    assert torch.equal(state, torch.get_rng_state())  # nobody else's random numbers were drawn


def test_an_epoch_sees_every_picture_once_in_an_order_of_its_own() -> None:
    epochs = [epoch_order(150, epoch, QUICK) for epoch in range(3)]
    assert [len(batch) for batch in epochs[0]] == [64, 64, 22]
    orders = [[place for batch in epoch for place in batch] for epoch in epochs]
    assert all(sorted(order) == list(range(150)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert orders[1] != [p for b in epoch_order(150, 0, LinearSettings(seed=1)) for p in b]


def test_figures_by_hand() -> None:
    classifier = nn.Linear(6, 6, bias=False)
    with torch.no_grad():
        classifier.weight.copy_(torch.eye(6))
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 3, 4, 5])
    features = torch.eye(6)[torch.tensor([0, 0, 0, 0, 1, 0, 2, 3, 5, 5])] + torch.arange(6) * 0.01
    metrics, recalls = measure_classifier(classifier, features, labels, [60, 50, 40, 30, 20, 10])
    assert recalls == [1.0, 0.5, 1.0, 1.0, 0.0, 1.0]
    assert metrics == pytest.approx(
        {
            "acc1": 0.8,
            "acc5": 0.9,  # the picture of class 1 that is taken for class 0 has its own class in the last place
            "mean_per_class_recall": 4.5 / 6,
            "head_recall": 0.75,
            "middle_recall": 1.0,
            "tail_recall": 0.5,
        }
    )


def test_bad_settings_are_told_all_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        LinearSettings(epochs=0, batch_size=0, lr=math.nan, seed=-1)
    assert len(caught.value.problems) == 4


def test_bad_input() -> None:
    features, labels = clusters(40, 4, 0)
    with pytest.raises(EvaluationError, match="two classes or more"):
        train_classifier(cached_batches(features, labels, QUICK), 8, 1, QUICK)
    with pytest.raises(EvaluationError, match="1 of 40 training features are not finite"):
        cached_batches(features.index_fill(0, torch.tensor([3]), torch.inf), labels, QUICK)
    wild = LinearSettings(epochs=2, batch_size=8, lr=1e38)
    with pytest.raises(EvaluationError, match=r"diverged in epoch 1.*--lr below 1e\+38"):
        train_classifier(cached_batches(features * 1e3, labels, wild), 8, 4, wild)
    with pytest.raises(EvaluationError, match="2 of 40 test features are not finite"):
        measure_classifier(
            nn.Linear(8, 4), features.index_fill(0, torch.tensor([3, 4]), torch.nan), labels, [10] * 4
        )
