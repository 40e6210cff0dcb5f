"""kNN accuracy in training: how well the pictures that are trained on say what a test picture shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from isogclr.evaluation.knn import knn_top1
from isogclr.evaluation.picture_features import PicturePart, Reading, plain_features
from isogclr.pictures import Pictures, labels_in, needed_labels, open_pictures
from isogclr.pictures.preprocessing import Preprocessing
from training.open_clip_bridge import Place
from training.randomness import generators_preserved
from training.settings import NeighbourSettings
from training.steps.metric_log import MetricLog
from training.views.view_model import TrainedViewModel

NAME = "knn_top1"
_TRAINING, _TEST = "the kNN accuracy (--val-data)", "--val-data"


@dataclass(frozen=True)
class TrainingPart:
    """The pictures that a run trains on: all of them, or the rows that were kept."""

    pictures: Pictures
    kept: npt.NDArray[np.int64] | None

    def rows(self) -> npt.NDArray[np.int64]:
        return self.pictures.positions() if self.kept is None else self.kept


class NeighbourEvaluation:
    """Features are those of the backbone, without the projector, as in linear evaluation.

    Opening it looks for the test pictures and their labels; `check` does the same for the training pictures.

    Args:
        settings: which data, and how often.
        label: where shards have their labels.
        model: to be measured, as it is then.
        preprocessing: of pictures.
        place: where to compute.
        training: gives the pictures that vote, once they are open.
    """

    def __init__(
        self,
        settings: NeighbourSettings,
        label: str,
        model: TrainedViewModel,
        preprocessing: Preprocessing,
        place: Place,
        training: Callable[[], TrainingPart],
    ) -> None:
        assert settings.val_data is not None
        self._settings = settings
        self._model = model
        self._preprocessing = preprocessing
        self._reading = Reading(place.device, settings.workers)
        self._training = training
        self._test = open_pictures(settings.val_data, split="test", label=label)
        needed_labels(self._test, _TEST)

    def check(self) -> None:
        """Raise what is wrong with the labels of the training pictures."""
        self._parts()

    def run(self, epoch: int, last_epoch: int, metrics: MetricLog) -> dict[str, float]:
        """The accuracy after this many epochs, a fraction; nothing if it is not its turn."""
        if epoch % self._settings.every_n_epochs and epoch != last_epoch:
            return {}
        training, test = self._parts()
        with generators_preserved():
            found = {NAME: knn_top1(self._features(training), training.labels, self._features(test), test.labels)}
        metrics.suite(epoch, found)
        return found

    def _parts(self) -> tuple[PicturePart, PicturePart]:
        part = self._training()
        labels = needed_labels(part.pictures, _TRAINING)
        assert part.pictures.classes is not None
        test_labels = labels_in(self._test, part.pictures.classes, _TEST)
        rows, test_rows = part.rows(), self._test.positions()
        return (
            PicturePart(part.pictures, rows, torch.from_numpy(labels[rows])),
            PicturePart(self._test, test_rows, torch.from_numpy(test_labels[test_rows])),
        )

    def _features(self, part: PicturePart) -> Tensor:
        backbone = self._model.bare.backbone
        backbone.eval()  # `Loop` puts it back before the next epoch
        return plain_features(backbone, part, self._preprocessing, self._reading)
