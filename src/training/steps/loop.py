"""The training loop: one epoch, step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isogclr.losses import ContrastiveLoss
from training.data.epoch import EpochBatches
from training.data.position import Batch
from training.features import TrainedModel
from training.ranks.stopping import StepGate
from training.signals import StopRequest
from training.steps.health import Health, is_bad
from training.steps.log_lines import StepReporter
from training.steps.optimization import Optimization
from training.steps.progress import Progress
from training.steps.step import Stepper, StepResult
from training.store.state_table import StateTable, new_state


@dataclass(frozen=True)
class Parts:
    """What the loop works with.

    Args:
        autocast: context of the model's precision.
        device: of the model.
        accumulation: micro-batches of a step.
        stop: interrupts the wait for data, if somebody asks this process to stop.
        gate: in front of every step; closed if some rank was asked to stop.
        health: counts steps that are not finite.
    """

    model: TrainedModel
    loss: ContrastiveLoss
    optimization: Optimization
    table: StateTable
    reporter: StepReporter
    autocast: Callable[[], AbstractContextManager[Any]]
    device: torch.device
    accumulation: int
    stop: StopRequest
    gate: StepGate
    health: Health


class Loop:
    """Trains epochs and keeps count.

    Args:
        parts: see `Parts`.
        progress: where to begin; goes on with every step.
    """

    def __init__(self, parts: Parts, progress: Progress) -> None:
        self._parts = parts
        self._progress = progress
        self._stepper = Stepper(parts.model, parts.loss, parts.optimization, parts.autocast)

    @property
    def is_asked_to_stop(self) -> bool:
        """Whether some rank was asked to stop; all ranks know it in front of the same step."""
        return self._parts.gate.is_asked_to_stop

    @property
    def health(self) -> Health:
        """Steps that were not finite, as far as all ranks know."""
        return self._parts.health

    def steps(self, batches: EpochBatches) -> Iterator[None]:
        """Train the epoch, or what is left of it; hands over after every step, for whoever wants to commit or end.

        When it is through, the state of the last step is in the store. It ends early if some rank is asked to stop.
        """
        progress, reporter, gate = self._progress, self._parts.reporter, self._parts.gate
        progress.position = batches.first_position
        accumulation = self._parts.accumulation
        steps = batches.count // accumulation
        increment = (progress.steps_per_epoch - progress.done) / steps if steps else 0.0
        self._parts.model.train()
        reporter.begin()
        iterator = batches.read(self._parts.stop.interrupts)
        for number in range(steps):
            micro_batches = gate.enter_with(lambda: [next(iterator) for _ in range(accumulation)])
            if micro_batches is None:
                break
            reporter.data_arrived()
            result = self._step(micro_batches, progress.schedule_step)
            progress.done = progress.steps_per_epoch - increment * (steps - 1 - number)
            reporter.step_ended(result, progress, number, is_last=number == steps - 1)
            yield
            reporter.restart()  # what was logged and committed is not the next step's time
        else:
            gate.enter_with(lambda: _exhaust(iterator))
        self.settle()

    def settle(self) -> None:
        """Let the last step's new state reach the store."""
        self._parts.table.settle()
        self._learn()

    def _learn(self) -> None:
        """What the exchange has said of the step before."""
        settled = self._parts.table.take_settled()
        if settled is not None:
            self._parts.health.add(settled)

    def _step(self, batches: Sequence[Batch], schedule_step: float) -> StepResult:
        parts, progress = self._parts, self._progress
        rows = torch.cat([batch.rows for batch in batches])
        parts.table.store.prefetch(rows.numpy())
        parts.optimization.begin(schedule_step)
        moved = [self._moved(batch.inputs) for batch in batches]
        result = self._stepper.run(moved, rows, lambda: parts.table.read(rows), progress.shared, schedule_step)
        self._learn()
        taken = parts.optimization.step()
        parts.model.after_step()
        if taken and result.output.shared is not None:
            progress.shared = result.output.shared
        if taken:
            parts.reporter.count_kept_rows(result)
        state = new_state(result.output, result.before)
        loss, optimization = result.output.loss.detach(), parts.optimization
        parts.table.send(
            rows,
            state,
            step=progress.step,
            epoch=progress.epoch,
            taken=taken,
            bad=is_bad(loss, optimization.gradient_norm, optimization.is_scaler_lost),
            loss=loss,
        )
        progress.step += 1
        for batch in batches:
            assert progress.position is not None
            progress.position = progress.position.after(batch)
        return result

    def _moved(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        device, dtype = self._parts.device, self._parts.model.input_dtype
        return [
            one.to(device=device, dtype=dtype if one.is_floating_point() else None, non_blocking=True)
            for one in inputs
        ]


def _exhaust(iterator: Iterator[Batch]) -> int:
    """Batches that do not fill a step: open_clip leaves them out too, and the data workers must come to an end."""
    return sum(1 for _ in iterator)
