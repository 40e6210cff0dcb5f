"""The paper's linear evaluation: a linear classifier on the features of a frozen backbone. Its last epoch counts.

Section 6.1 of the paper: SGD with Nesterov momentum, batches of 256, 100 epochs, learning rate 30, times 0.2 at
epochs 40, 60 and 80. The paper does not say momentum and weight decay: 0.9 and none are from the authors' program.
That program reports the best of all epochs on the test set; here the test set is looked at once, after the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from isogclr.errors import ConfigError, EvaluationError, InputError
from isogclr.evaluation.class_parts import class_recalls, part_recalls
from isogclr.evaluation.metrics import mean_per_class_recall, require_finite, top_k_accuracy

TOP_K = (1, 5)
Batches = Callable[
    [int], Iterator[tuple[Tensor, Tensor]]
]  # epoch -> features [B, D] and labels [B], batch by batch


@dataclass(frozen=True)
class LinearSettings:
    """How the classifier is trained; the defaults are the paper's.

    Attributes:
        decay_at: when the learning rate falls, as fractions of the epochs: a shorter training keeps its shape.
        decay: what it is multiplied by each time.
        seed: of the first weights, of the order of the pictures and of their augmentation.
    """

    epochs: int = 100
    lr: float = 30.0
    batch_size: int = 256
    momentum: float = 0.9
    weight_decay: float = 0.0
    decay_at: tuple[float, ...] = (0.4, 0.6, 0.8)
    decay: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        problems = []
        if self.epochs < 1:
            problems.append(f"{self.epochs} epochs: expected one or more")
        if self.batch_size < 1:
            problems.append(f"a batch of {self.batch_size}: expected one or more")
        if not (math.isfinite(self.lr) and self.lr > 0):
            problems.append(f"learning rate {self.lr}: expected a number above 0")
        if not 0 <= self.seed < 1 << 63:
            problems.append(f"seed {self.seed}: expected 0 or more, below 2^63")
        if problems:
            raise ConfigError(problems)


def learning_rate(epoch: int, settings: LinearSettings) -> float:
    """That of an epoch, counted from 0."""
    falls = sum(epoch >= round(part * settings.epochs) for part in settings.decay_at)
    return settings.lr * settings.decay**falls


def train_classifier(
    batches: Batches,
    width: int,
    classes: int,
    settings: LinearSettings,
    device: torch.device | str = "cpu",
    after_epoch: Callable[[int, float], None] | None = None,
) -> nn.Linear:
    """The classifier after the last epoch. The same seed and the same batches give the same weights on a CPU.

    Args:
        batches: called once per epoch.
        width: of the features.
        after_epoch: told the epochs completed and the mean loss of the last of them.
    """
    if classes < 2:
        raise EvaluationError(f"{classes} class: a classifier needs pictures of two classes or more")
    classifier = _first_weights(width, classes, settings.seed).to(device)
    optimizer = torch.optim.SGD(
        classifier.parameters(),
        lr=settings.lr,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=True,
    )
    for epoch in range(settings.epochs):
        optimizer.param_groups[0]["lr"] = learning_rate(epoch, settings)
        total, pictures = torch.zeros((), device=device), 0
        for features, labels in batches(epoch):
            loss = cross_entropy(classifier(features), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total += loss.detach() * len(labels)
            pictures += len(labels)
        mean = float(total) / max(pictures, 1)
        if not math.isfinite(mean):
            raise EvaluationError(
                f"the linear classifier has diverged in epoch {epoch + 1}: its loss is {mean}; "
                f"try --lr below {settings.lr:g}"
            )
        if after_epoch is not None:
            after_epoch(epoch + 1, mean)
    return classifier


def _first_weights(width: int, classes: int, seed: int) -> nn.Linear:
    """Small, with a generator of their own: the global one stays as it is."""
    random = torch.Generator().manual_seed(seed)
    classifier = nn.Linear(width, classes, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        classifier.weight.copy_(0.01 * torch.randn(classes, width, generator=random))
        classifier.bias.zero_()
    return classifier


def cached_batches(features: Tensor, labels: Tensor, settings: LinearSettings) -> Batches:
    """Batches of features [N, D] that were computed once, in an order that depends on seed and epoch only."""
    if len(features) != len(labels) or not len(labels):
        raise InputError(f"{len(features)} features and {len(labels)} labels: expected as many, and some")
    require_finite("training features", features)

    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        for places in epoch_order(len(labels), epoch, settings):
            chosen = torch.as_tensor(places, device=features.device)
            yield features[chosen], labels[chosen]

    return batches


def epoch_order(pictures: int, epoch: int, settings: LinearSettings) -> list[list[int]]:
    """Places of the pictures of each batch; the last batch may be smaller."""
    random = torch.Generator().manual_seed((settings.seed * 1_000_003 + epoch + 1) % (1 << 63))
    order: list[int] = torch.randperm(pictures, generator=random).tolist()
    return [order[start : start + settings.batch_size] for start in range(0, pictures, settings.batch_size)]


def measure_classifier(
    classifier: nn.Linear, features: Tensor, labels: Tensor, sizes: Sequence[int]
) -> tuple[dict[str, float], list[float | None]]:
    """Metrics on the test pictures, as fractions, and the recall of each class.

    Args:
        sizes: number of training pictures of every class; where they differ, head, middle and tail are told apart.
    """
    require_finite("test features", features)
    with torch.no_grad():
        logits = classifier(features)
    found = top_k_accuracy(logits, labels, TOP_K)
    found["mean_per_class_recall"] = mean_per_class_recall(logits, labels)
    recalls = class_recalls(logits.argmax(dim=1), labels, len(sizes))
    return found | part_recalls(recalls, sizes), recalls
