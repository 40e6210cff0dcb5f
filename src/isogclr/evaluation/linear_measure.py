"""One backbone on one pair of picture sets: the neighbours' vote, and the classifier with its figures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from isogclr.errors import ConfigError
from isogclr.evaluation.knn import NEIGHBOURS, TEMPERATURE, knn_top1
from isogclr.evaluation.linear import (
    Batches,
    LinearSettings,
    cached_batches,
    measure_classifier,
    train_classifier,
)
from isogclr.evaluation.linear_data import LinearData
from isogclr.evaluation.picture_features import Reading, augmentation, augmented_batches, plain_features
from isogclr.models.view_checkpoints import LoadedBackbone

_EPOCHS_TOLD = 10  # lines of progress


@dataclass(frozen=True)
class LinearPlan:
    """All that changes a result, beside backbone and pictures.

    Attributes:
        cached: features once, by the plain transform, instead of new ones in each epoch, augmented.
    """

    settings: LinearSettings = field(default_factory=LinearSettings)
    cached: bool = False
    neighbours: int = NEIGHBOURS
    temperature: float = TEMPERATURE

    def __post_init__(self) -> None:
        problems = []
        if self.neighbours < 1:
            problems.append(f"{self.neighbours} neighbours: expected one or more")
        if not self.temperature > 0:
            problems.append(f"kNN temperature {self.temperature}: expected a number above 0")
        if problems:
            raise ConfigError(problems)

    def described(self) -> dict[str, Any]:
        """As plain values, for files and keys."""
        others = {name: value for name, value in asdict(self).items() if name != "settings"}
        return asdict(self.settings) | others


@dataclass(frozen=True)
class Measured:
    """Metrics as fractions; the recall of each class; the classifier's mean loss in its last epoch."""

    metrics: dict[str, float]
    recalls: list[float | None]
    train_loss: float

    def doubt(self, plan: LinearPlan) -> str | None:
        """What is wrong with a classifier that has learned less than the number of classes says, if it has."""
        guessing, rate = math.log(len(self.recalls)), plan.settings.lr
        if self.train_loss <= guessing:
            return None
        return (
            f"the linear classifier has not settled: its loss is {self.train_loss:.2f}, and guessing has "
            f"{guessing:.2f}; --lr {rate:g} is too large for these features, try {rate / 100:g}"
        )


def measure_backbone(
    loaded: LoadedBackbone, data: LinearData, reading: Reading, plan: LinearPlan, say: Callable[[str], None]
) -> Measured:
    """Neighbours are always found by the plain transform, and test pictures never see another one."""
    preprocessing = loaded.preprocessing()
    train = plain_features(loaded.backbone, data.train, preprocessing, reading)
    test = plain_features(loaded.backbone, data.test, preprocessing, reading)
    train_labels, test_labels = (part.labels.to(reading.device) for part in (data.train, data.test))
    nearest = knn_top1(
        train, train_labels, test, test_labels, neighbours=plan.neighbours, temperature=plan.temperature
    )
    say(f"kNN {100 * nearest:.2f} %")
    losses = []

    def note(epoch: int, loss: float) -> None:
        losses.append(loss)
        epochs = plan.settings.epochs
        if epoch == epochs or epoch % -(-epochs // _EPOCHS_TOLD) == 0:
            say(f"linear classifier: epoch {epoch} of {epochs}, loss {loss:.4f}")

    classifier = train_classifier(
        _batches(loaded, data, reading, plan, train, train_labels),
        loaded.width,
        len(data.classes),
        plan.settings,
        reading.device,
        note,
    )
    metrics, recalls = measure_classifier(classifier, test, test_labels, data.sizes)
    return Measured({**metrics, "knn_acc1": nearest}, recalls, losses[-1])


def _batches(
    loaded: LoadedBackbone, data: LinearData, reading: Reading, plan: LinearPlan, features: Tensor, labels: Tensor
) -> Batches:
    if plan.cached:
        return cached_batches(features, labels, plan.settings)
    preprocessing = loaded.preprocessing()
    transform = augmentation(preprocessing.image_size, preprocessing.to_input())
    return augmented_batches(loaded.backbone, data.train, transform, plan.settings, reading)
