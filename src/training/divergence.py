"""What is done when a run has diverged: say so, keep the last sound commit, and go back to it if asked for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from isogclr.distributed import Messages
from isogclr.state import Generation
from training.commits.rollback import Rollbacks, commit_again, last_tried, set_aside_after
from training.settings import DivergenceSettings
from training.steps.health import Health
from training.steps.metric_log import MetricLog

# EX_PROTOCOL of sysexits.h, the neighbour of the code for a stop: who requeues must not take one for the other.
DIVERGED_EXIT_CODE = 76
_NAMED = 3  # of the tensors that are not finite


@dataclass(frozen=True)
class Divergence:
    """The end of a run that has diverged, or its way back.

    Args:
        settings: what was asked for.
        health: of the loop.
        metrics: where it is noted.
        messages: between all ranks; the first one decides.
        generations: folder of the commits; None if nothing is stored.
        rollbacks: before this one.
        lr: the learning rate of the last step.
    """

    settings: DivergenceSettings
    health: Health
    metrics: MetricLog
    messages: Messages
    generations: Path | None
    rollbacks: Rollbacks
    lr: Callable[[], float]

    def goes_back(self, step: int) -> bool:
        """All ranks, after this step: whether the run goes on from an earlier commit, which is then the newest."""
        return bool(self.messages.from_first(self._decide(step) if self.messages.ranks.rank == 0 else None))

    def _decide(self, step: int) -> bool:
        sound = None if self.generations is None else last_tried(self.generations, self.health.first_bad)
        aside = [] if sound is None else set_aside_after(sound)
        found, last = self._what_was_found(step), self._what_was_last(sound, aside)
        refusal = self._refusal(sound)
        noted = {"loss": self.health.loss, "lr": self.lr(), "bad_steps": self.health.bad_in_a_row}
        self.metrics.divergence(step, {**noted, "last_finite_step": self.health.last_finite})
        if refusal is not None or sound is None:
            logging.error(f"{found} {last} {refusal or ''}{self._what_to_do(sound)}")
            return False
        rollbacks = self.rollbacks.once_more(self.settings.lr_factor)
        again = commit_again(sound, rollbacks)
        logging.warning(
            f"{found} {last} Rollback {rollbacks.count} of {self.settings.max_rollbacks}: going back to step "
            f"{sound.step} with {rollbacks.lr_factor:g} of --lr; committed so as {again}"
        )
        went_back = {"diverged_at": step, "rollbacks": rollbacks.count, "lr_factor": rollbacks.lr_factor, **noted}
        self.metrics.rollback(sound.step, went_back)
        return True

    def _refusal(self, sound: Generation | None) -> str | None:
        """Why there is no way back; None if there is one."""
        if not self.settings.rolls_back:
            return ""
        if sound is None:
            return "There is no commit to go back to. "
        if self.rollbacks.count >= self.settings.max_rollbacks:
            return f"It has gone back {self.rollbacks.count} times, as often as --max-rollbacks allows. "
        return None

    def _what_was_found(self, step: int) -> str:
        health = self.health
        broken = ", ".join(health.broken[:_NAMED]) + (" and others" if len(health.broken) > _NAMED else "")
        weights = f"{len(health.broken)} tensors are not finite ({broken})" if health.broken else ""
        steps = ""
        if health.first_bad is not None:
            steps = (
                f"found a loss or gradients that are not finite in {health.bad_in_a_row} steps in a row, "
                f"{health.first_bad} to {step}"
            )
        what = "; ".join(part for part in (steps, weights) if part)
        return f"The run has diverged at step {step}: {what} (loss {health.loss:g}, learning rate {self.lr():g})."

    def _what_was_last(self, sound: Generation | None, aside: list[Path]) -> str:
        last = self.health.last_finite
        finite = "No step was finite since this start" if last is None else f"The last finite step was {last}"
        if self.generations is None:
            return f"{finite}, and nothing was committed, because of --logs none."
        moved = "".join(f" {path.name} was set aside: the step after it was not finite." for path in aside)
        if sound is None:
            newest = last_tried(self.generations, None)
            if newest is None:
                return f"{finite}, and nothing was ever committed."
            return f"{finite}; the only commit, {newest.path}, leads straight to a step that was not."
        return f"{finite}; the last sound commit is of step {sound.step}, {sound.path}.{moved}"

    def _what_to_do(self, sound: Generation | None) -> str:
        """What helps most often comes first."""
        start = "start again under a new --name" if sound is None else "go on from there by --resume latest"
        offer = "" if self.settings.rolls_back else " --on-divergence rollback does the first of these by itself."
        return (
            f"What to do: {start}, with a lower --lr, a longer warm-up, --grad-clip-norm 1, or another --precision "
            f"(fp32 is the safest; where there are such, fp16 and pure_fp16 do not scale gradients).{offer}"
        )
