"""Epoch after epoch: train, evaluate, commit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from isogclr.distributed import Messages
from isogclr.losses import ContrastiveLoss
from training import randomness
from training.commits.commit import Commits, Trained
from training.commits.resume import Resumed
from training.data.epoch import EpochBatches, TrainData
from training.divergence import Divergence
from training.open_clip_bridge import Place
from training.program import Evaluation
from training.settings import RunSettings
from training.steps.loop import Loop
from training.steps.metric_log import MetricLog
from training.steps.progress import Progress
from training.store.all_rows import seen_in_epoch, temperature_histograms
from training.store.state_table import StateTable


class Outcome(Enum):
    """How training has ended."""

    FINISHED = "finished"
    STOPPED = "stopped on request"
    DIVERGED = "diverged"
    ROLLED_BACK = "diverged, and an earlier commit is the newest again"


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
        broken: names of tensors that are not finite, of what a commit would hold.
        divergence: what is done if the run diverges.
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
    broken: Callable[[], list[str]]
    divergence: Divergence

    def run(self, resumed: Resumed | None) -> Outcome:
        """Train to the end, or until somebody asks to stop, or until it makes no sense any more."""
        rest = None if resumed is None else self._rest_of_epoch(resumed)
        if resumed is None and self.evaluates and self.evaluates_first:
            self._measure(0)
            self.messages.barrier()
        for epoch in range(self.progress.epoch, self.settings.epochs):
            if self.place.is_first:
                logging.info(f"Start epoch {epoch}")
            self.progress.epoch = epoch
            ended = self._train(rest or self.data.epoch(epoch))
            if ended is not None:
                return ended
            rest = None
            is_committed = self._end_epoch(epoch + 1)
            if not is_committed and epoch + 1 == self.settings.epochs:
                return self._diverged()
        return Outcome.FINISHED

    def _train(self, batches: EpochBatches) -> Outcome | None:
        """None at the end of the epoch. A stop on the way comes after a commit."""
        for _ in self.loop.steps(batches):
            if self._has_diverged():
                return self._diverged()
            if self.commits is not None and self.commits.is_due(self.progress.step):
                self._commit()
        if self._has_diverged():
            return self._diverged()
        if self.loop.is_asked_to_stop:  # maybe behind the last step: nobody will wait for an evaluation
            return self._stopped()
        return None

    def _stopped(self) -> Outcome:
        """After a commit of the last step, unless there is one."""
        if self.commits is None or self.commits.last_step == self.progress.step or self._commit():
            return Outcome.STOPPED
        return self._diverged()

    def _has_diverged(self) -> bool:
        health = self.loop.health
        return health.is_over or (health.is_time_to_look(self.progress.step) and not self._is_finite())

    def _diverged(self) -> Outcome:
        self.loop.settle()
        return Outcome.ROLLED_BACK if self.divergence.goes_back(self.progress.step) else Outcome.DIVERGED

    def _commit(self, completed_epoch: int | None = None) -> bool:
        """False if weights, buffers or optimizer are not finite: then nothing is published."""
        self.loop.settle()
        if not self._is_finite():
            return False
        if self.commits is not None:
            self.commits.commit(
                self.progress,
                self.trained,
                self.table.store,
                completed_epoch=completed_epoch,
                is_sound=self.loop.health.bad_in_a_row == 0,
            )
        return True

    def _is_finite(self) -> bool:
        """All ranks: whether what a commit would hold is finite on every one of them. Waits for the device."""
        everyone = self.messages.gather(self.broken())
        found = tuple(dict.fromkeys(name for one in everyone for name in one))
        is_news = self.loop.health.looked(self.progress.step, found)
        if is_news and self.place.is_first:
            logging.error(
                f"Step {self.progress.step} is not committed: {len(found)} tensors are not finite, {found[0]} among"
                " them. Earlier commits stay; training goes on, for at most --max-bad-steps of such steps"
            )
        return not found

    def _end_epoch(self, completed: int) -> bool:
        """Evaluate, then commit. What was trained is committed before: a crash in here repeats only this.

        False if what was trained is not finite: then it is neither committed nor evaluated.
        """
        is_committed = self._commit() if self.evaluates else True
        if is_committed:
            self._measure(completed)
        if is_committed and self.place.is_first:
            for record in self._histograms():
                self.metrics.distribution(self.progress.step, completed, record)
        left_out = sum(self.messages.gather(self.data.undecodable))  # also a barrier: the first rank evaluates
        if left_out and self.place.is_first:
            logging.warning(f"{left_out:,} samples could not be decoded since the start, and were left out")
        self.progress.done, self.progress.position = 0.0, None
        return self._commit(completed_epoch=completed)

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
            logging.warning(
                f"--epochs is {self.settings.epochs}, and {progress.epoch} are over: there is nothing to train"
            )
            return None
        generators = resumed.generators(rank)
        if generators is not None:
            randomness.restore(generators, self.place.device)
        else:
            randomness.seed_everything(self.settings.seed + progress.step, rank)
        position = resumed.position(rank)
        if position is None:
            return data.resume_before(progress.epoch)
        if data.same_set_up(position):
            return data.resume_at(position)
        changes = "; ".join(position.set_up.differences(data.set_up)) or "it had changed before"
        logging.info(f"The set-up has changed ({changes}): going on with the samples that this epoch has not seen")
        return data.resume_rest(progress.epoch, seen_in_epoch(self.table.store, progress.epoch))
