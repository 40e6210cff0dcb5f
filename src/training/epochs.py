"""Epoch after epoch: train, evaluate, commit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from isogclr.distributed import Messages
from isogclr.losses import ContrastiveLoss
from training import randomness
from training.commits.commit import Commits, Trained
from training.commits.resume import Resumed
from training.data.epoch import EpochBatches, TrainData
from training.open_clip_bridge import Place
from training.program import Evaluation
from training.settings import RunSettings
from training.steps.loop import Loop
from training.steps.metric_log import MetricLog
from training.steps.progress import Progress
from training.store.all_rows import seen_in_epoch, temperature_histograms
from training.store.state_table import StateTable


@dataclass(frozen=True)
class Epochs:
    """Trains a run to its end.

    Args:
        settings: how many epochs.
        place: of this rank.
        messages: between all ranks.
        loop: trains an epoch.
        progress: of the loop.
        trained: model and optimizer, as a commit takes them.
        data, table, loss: what the loop trains with.
        metrics: where numbers go.
        evaluates: whether something is measured after an epoch.
        evaluates_first: whether a new run is measured before its first step, too.
        evaluation: what measures it, on the first rank.
        commits: None if nothing is stored.
    """

    settings: RunSettings
    place: Place
    messages: Messages
    loop: Loop
    progress: Progress
    trained: Trained
    data: TrainData
    table: StateTable
    loss: ContrastiveLoss
    metrics: MetricLog
    evaluates: bool
    evaluates_first: bool
    evaluation: Evaluation | None
    commits: Commits | None

    def run(self, resumed: Resumed | None) -> bool:
        """False if somebody asked to stop."""
        rest = None if resumed is None else self._rest_of_epoch(resumed)
        if resumed is None and self.evaluates and self.evaluates_first:
            self._measure(0)
            self.messages.barrier()
        for epoch in range(self.progress.epoch, self.settings.epochs):
            if self.place.is_first:
                logging.info(f"Start epoch {epoch}")
            self.progress.epoch = epoch
            if not self._train(rest or self.data.epoch(epoch)):
                return False
            rest = None
            self._end_epoch(epoch + 1)
        return True

    def _train(self, batches: EpochBatches) -> bool:
        """False if it was stopped on the way, after a commit."""
        for _ in self.loop.steps(batches):
            is_due = self.commits is not None and self.commits.is_due(self.progress.step)
            if is_due or self.loop.is_asked_to_stop:
                self._commit()
            if self.loop.is_asked_to_stop:
                return False
        if self.loop.is_asked_to_stop:  # in the last step: evaluation may take longer than whoever asked will wait
            self._commit()
            return False
        return True

    def _commit(self, completed_epoch: int | None = None) -> None:
        if self.commits is None:
            return
        self.loop.settle()
        self.commits.commit(self.progress, self.trained, self.table.store, completed_epoch=completed_epoch)

    def _end_epoch(self, completed: int) -> None:
        """Evaluate, then commit. What was trained is committed before: a crash in here repeats only this."""
        if self.evaluates:
            self._commit()
        self._measure(completed)
        if self.place.is_first:
            for record in self._histograms():
                self.metrics.distribution(self.progress.step, completed, record)
        left_out = sum(self.messages.gather(self.data.undecodable))  # also a barrier: the first rank evaluates
        if left_out and self.place.is_first:
            logging.warning(f"{left_out:,} samples could not be decoded since the start, and were left out")
        self.progress.done, self.progress.position = 0.0, None
        self._commit(completed_epoch=completed)

    def _measure(self, completed: int) -> None:
        if self.evaluation is not None:
            found = self.evaluation.run(completed, self.settings.epochs, self.metrics)
            self.metrics.validation(self.progress.step, completed, found)

    def _histograms(self) -> Iterator[dict[str, Any]]:
        if self.loss.temperature_bounds is not None:
            yield from temperature_histograms(self.table.store, *self.loss.temperature_bounds)

    def _rest_of_epoch(self, resumed: Resumed) -> EpochBatches | None:
        """What is left of the epoch that a commit was made in, by the two rules of `docs/data_flow.md`."""
        progress, data, rank = self.progress, self.data, self.place.rank
        logging.info(
            f"=> resuming checkpoint '{resumed.source}' (epoch {progress.epoch}, step {progress.step}, "
            f"{100 * progress.fraction:.1f}% of the epoch done)"
        )
        if progress.epoch >= self.settings.epochs:
            return None
        generators = resumed.generators(rank)
        if generators is not None:
            randomness.restore(generators, self.place.device)
        else:
            randomness.seed_everything(self.settings.seed + progress.step, rank)
        position = resumed.position(rank)
        if position is None:
            return data.resume_at(data.start_of(progress.epoch))
        if data.same_set_up(position):
            return data.resume_at(position)
        changes = "; ".join(position.set_up.differences(data.set_up)) or "it had changed before"
        logging.info(f"The set-up has changed ({changes}): going on with the samples that this epoch has not seen")
        return data.resume_rest(progress.epoch, seen_in_epoch(self.table.store, progress.epoch))
