"""What is measured after an epoch, on the first rank, while the others wait: open_clip's validation, a suite."""

from __future__ import annotations

from typing import Any

from isogclr.evaluation.in_training import evaluate_model, locate_suite
from training.model import Model
from training.open_clip_bridge import OpenClip, Place
from training.randomness import generators_preserved
from training.settings import EvaluationSettings
from training.steps.metric_log import MetricLog

# The run's precision as `isogclr eval` names it; the weights of others are half themselves.
_PRECISIONS = {"amp": "amp", "amp_bf16": "amp_bf16", "amp_bfloat16": "amp_bf16"}


class PairEvaluation:
    """Everything that a run was asked to measure. Opening it checks that the data is there.

    Args:
        open_clip: whose validation code is used.
        settings: which suite of `isogclr eval`, and how often.
        model: to be measured, as it is then.
        place: where to compute.
        precision: of the run.
    """

    def __init__(
        self, open_clip: OpenClip, settings: EvaluationSettings, model: Model, place: Place, precision: str
    ) -> None:
        self._open_clip = open_clip
        self._settings = settings
        self._model = model
        self._place = place
        self._precision = _PRECISIONS.get(precision, "fp32")
        self._data: dict[str, Any] = open_clip.evaluation_data(model.transforms, model.tokenizer)
        self._suite = (
            []
            if settings.suite is None
            else locate_suite(settings.suite, settings.data_root or ".", settings.datasets)
        )

    def run(self, epoch: int, last_epoch: int, metrics: MetricLog) -> dict[str, float]:
        """Metrics after this many epochs. Training draws the same random numbers as without."""
        model = self._model
        with generators_preserved():
            found = self._open_clip.evaluate(model.wrapped, self._data, epoch, metrics.writer, model.tokenizer)
            if self._suite and (epoch % self._settings.every_n_epochs == 0 or epoch == last_epoch):
                measured = evaluate_model(
                    model.bare,
                    model.transforms[1],
                    model.tokenizer,
                    self._suite,
                    device=self._place.device,
                    precision=self._precision,
                    batch_size=self._settings.batch_size,
                    workers=self._settings.workers,
                )
                metrics.suite(epoch, measured)
                found |= measured
        return found
