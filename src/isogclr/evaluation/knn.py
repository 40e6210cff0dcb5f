"""Accuracy of the nearest neighbours: how good features are, without training anything.

The neighbours of a test picture are the k training pictures of highest cosine similarity; each votes for its class
with the weight exp(similarity / temperature). From Wu et al., Unsupervised Feature Learning via Non-Parametric
Instance Discrimination (2018), with their k = 200 and the temperature 0.1 that is usual since.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import normalize

from isogclr.errors import InputError
from isogclr.evaluation.metrics import require_finite, top_k_accuracy

NEIGHBOURS = 200
TEMPERATURE = 0.1
_TILE = 1024  # test pictures whose similarities are held at once


def knn_votes(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    classes: int,
    *,
    neighbours: int = NEIGHBOURS,
    temperature: float = TEMPERATURE,
    tile: int = _TILE,
) -> Tensor:
    """Votes [M, classes] of the training pictures [N, D] for the test pictures [M, D]; features of any length.

    Exact: every similarity is computed, a tile [tile, N] at a time. With fewer training pictures than `neighbours`
    all of them vote. The weights of a test picture are divided by that of its nearest neighbour, which changes no
    order and lets any temperature stay finite.
    """
    _check(train_features, train_labels, test_features, classes, neighbours, temperature)
    train = normalize(train_features.float(), dim=1)
    votes = train.new_zeros(len(test_features), classes)
    labels = train_labels.to(train.device)
    for start in range(0, len(test_features), tile):
        test = normalize(test_features[start : start + tile].float().to(train.device), dim=1)
        nearest = (test @ train.T).topk(min(neighbours, len(train)), dim=1)  # [tile, k]
        weights = ((nearest.values - nearest.values[:, :1]) / temperature).exp()
        votes[start : start + tile].scatter_add_(1, labels[nearest.indices], weights)
    return votes


def knn_top1(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    *,
    neighbours: int = NEIGHBOURS,
    temperature: float = TEMPERATURE,
) -> float:
    """Share of test pictures [M, D] whose class wins the vote of their neighbours, a fraction."""
    if len(test_features) != len(test_labels) or not len(test_labels):
        raise InputError(
            f"{len(test_features)} test features and {len(test_labels)} labels: expected as many, and some"
        )
    classes = 1 + int(max(train_labels.max(), test_labels.max())) if len(train_labels) else 0
    votes = knn_votes(
        train_features,
        train_labels,
        test_features,
        classes,
        neighbours=neighbours,
        temperature=temperature,
    )
    return top_k_accuracy(votes, test_labels.to(votes.device), (1,))["acc1"]


def _check(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    classes: int,
    neighbours: int,
    temperature: float,
) -> None:
    if len(train_features) != len(train_labels) or not len(train_labels):
        raise InputError(
            f"{len(train_features)} training features and {len(train_labels)} labels: expected as many, and some"
        )
    lowest, highest = int(train_labels.min()), int(train_labels.max())
    if lowest < 0 or highest >= classes:
        raise InputError(f"labels reach from {lowest} to {highest}, but there are {classes} classes")
    if neighbours < 1 or not temperature > 0:
        raise InputError(
            f"{neighbours} neighbours at temperature {temperature}: expected one or more, and a temperature above 0"
        )
    require_finite("training features", train_features)
    require_finite("test features", test_features)
