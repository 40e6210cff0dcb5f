"""The training loop: one epoch, step by step."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import open_clip
import torch
from torch import Tensor

from isogclr.distributed import Ranks
from isogclr.losses import ContrastiveLoss, SampleState
from training.data.epoch import EpochBatches, TrainData
from training.data.position import Batch, Position
from training.model import Model
from training.signals import StopRequest
from training.steps.metric_log import Average, MetricLog, learned_summary
from training.steps.optimization import Optimization
from training.steps.step import MicroBatch, Stepper, StepResult
from training.store.table import StateTable, new_state


@dataclass
class Progress:
    """Where a run is.

    Args:
        epoch: being trained, from 0.
        step: number of the next optimizer step, from 0; never goes back.
        done: how much of the epoch is over, in steps of the schedule. After a change of set-up in the middle of an
            epoch its steps are larger or smaller than 1, so that the schedule still ends with the epoch.
        steps_per_epoch: of the schedule.
        position: of this rank in the data of the epoch; None between epochs.
        shared: state that all samples share, for losses that have some.
    """

    epoch: int = 0
    step: int = 0
    done: float = 0.0
    steps_per_epoch: int = 0
    position: Position | None = None
    shared: SampleState | None = None


@dataclass(frozen=True)
class Parts:
    """What the loop works with."""

    model: Model
    loss: ContrastiveLoss
    optimization: Optimization
    stepper: Stepper
    table: StateTable
    data: TrainData
    metrics: MetricLog
    ranks: Ranks
    device: torch.device
    precision: str
    accumulation: int
    stop: StopRequest


class Loop:
    """Trains epochs and keeps count.

    Args:
        parts: see `Parts`.
        progress: where to begin; goes on with every step.
        log_every_n_steps: as open_clip's flag.
        after_step: called after every step, with whether the loop will stop; commits if it is time.
    """

    def __init__(
        self, parts: Parts, progress: Progress, log_every_n_steps: int, after_step: Callable[[bool], None]
    ) -> None:
        self._parts = parts
        self.progress = progress
        self._log_every_n_steps = log_every_n_steps
        self._after_step = after_step
        self._input_dtype = open_clip.get_input_dtype(parts.precision)
        self._asked_to_stop = False
        self._kept_rows: Tensor | None = None
        self._logged = _Counters(progress.step)

    def train_epoch(self, batches: EpochBatches) -> bool:
        """Train the epoch, or what is left of it. False if it was stopped on the way, after a commit."""
        parts, progress = self._parts, self.progress
        progress.position = batches.first_position
        per_epoch = progress.steps_per_epoch
        accumulation = parts.accumulation
        steps = batches.batches // accumulation
        increment = (per_epoch - progress.done) / steps if steps else 0.0
        clock = _Clock()
        parts.model.called.train()
        iterator = iter(batches)
        for number in range(steps):
            micro_batches = [next(iterator) for _ in range(accumulation)]
            clock.data_arrived()
            result = self._step(micro_batches, per_epoch * progress.epoch + progress.done)
            progress.done = per_epoch - increment * (steps - 1 - number)
            clock.step_ended()
            if number % self._log_every_n_steps == 0 or number == steps - 1:
                self._log(result, clock, sum(len(batch.rows) for batch in micro_batches))
            self._after_step(self._asked_to_stop)
            if self._asked_to_stop:
                return False
            clock.restart()  # what was logged and committed is not the next step's time
        _exhaust(iterator)
        self.settle()
        if self._asked_to_stop:  # in the last step: evaluation may take longer than whoever asked will wait
            self._after_step(True)
            return False
        return True

    def settle(self) -> None:
        """Let the last step's new state reach the store."""
        self._asked_to_stop |= self._parts.table.settle()

    def _step(self, batches: list[Batch], schedule_step: float) -> StepResult:
        parts, progress = self._parts, self.progress
        rows = torch.cat([batch.rows for batch in batches])
        parts.table.store.prefetch(rows.numpy())
        parts.optimization.begin(schedule_step)
        moved = [self._moved(batch) for batch in batches]

        def read_state() -> SampleState:
            self.settle()
            return parts.table.read(rows)

        result = parts.stepper.run(moved, rows, read_state, progress.shared, schedule_step)
        taken = parts.optimization.step()
        parts.model.clamp_logit_scale()
        if taken and result.output.shared is not None:
            progress.shared = result.output.shared
        if taken:
            self._count_kept_rows(result)
        state = new_state(result.output, result.before)
        parts.table.send(rows, state, step=progress.step, epoch=progress.epoch, taken=taken, stop=bool(parts.stop))
        progress.step += 1
        for batch in batches:
            assert progress.position is not None
            progress.position = progress.position.after(batch)
        return result

    def _moved(self, batch: Batch) -> MicroBatch:
        device = self._parts.device
        return MicroBatch(
            batch.images.to(device=device, dtype=self._input_dtype, non_blocking=True),
            batch.texts.to(device=device, non_blocking=True),
        )

    def _count_kept_rows(self, result: StepResult) -> None:
        """On the device, so that no step waits for it."""
        not_finite = result.output.details.get("not_finite")
        if not_finite is not None:
            count = not_finite.sum()
            self._kept_rows = count if self._kept_rows is None else self._kept_rows + count

    def _log(self, result: StepResult, clock: _Clock, samples: int) -> None:
        """All ranks: statistics are means over them. The only place where a step waits for the device."""
        parts, progress = self._parts, self.progress
        statistics = self._statistics(result)
        counted = _Counters(
            progress.step,
            getattr(parts.table.store, "wait_seconds", 0.0),
            parts.table.wait_seconds,
            parts.table.ranks.bytes_received,
        )
        per_second = samples / max(clock.batch.last, 1e-9)
        line = {
            "data_time": clock.data.last,
            "batch_time": clock.batch.last,
            "samples_per_second": per_second * parts.ranks.size,
            "samples_per_second_per_gpu": per_second,
            "scale": float(result.logit_scale),
            "lr": parts.optimization.lr,
            **counted.since(self._logged),
            **statistics,
        }
        self._logged = counted
        self._write_line(line, clock, statistics)
        fraction = progress.done / progress.steps_per_epoch
        seen = round(fraction * parts.data.samples_per_epoch)
        record = {
            "epoch": progress.epoch + fraction,
            "samples": progress.epoch * parts.data.samples_per_epoch + seen,
        }
        parts.metrics.train(progress.step - 1, line, record)
        clock.reset()

    def _statistics(self, result: StepResult) -> dict[str, float]:
        parts = self._parts
        own = {"loss": result.output.loss.detach()} | parts.loss.statistics(result.output)
        own.pop("kept_rows", None)
        values = torch.stack([value.to(torch.float32) for value in own.values()])
        if parts.loss.averages_over_ranks:
            values = parts.ranks.sum(values) / parts.ranks.size
        found = dict(zip(own, values.tolist(), strict=True))
        if self._kept_rows is not None:
            found["kept_rows"] = float(parts.ranks.sum(self._kept_rows))
            self._kept_rows = None
        if not parts.loss.averages_over_ranks:
            found["contrastive_loss"] = found["loss"]  # what open_clip calls it
        return found

    def _write_line(self, line: dict[str, float], clock: _Clock, statistics: dict[str, float]) -> None:
        if self._parts.ranks.rank != 0:
            return
        progress, data = self.progress, self._parts.data
        fraction = progress.done / progress.steps_per_epoch
        digits = math.ceil(math.log10(data.samples_per_epoch + 1))
        seen = round(fraction * data.samples_per_epoch)
        logging.info(
            f"Train Epoch: {progress.epoch} [{seen:>{digits}}/{data.samples_per_epoch} ({100 * fraction:.0f}%)] "
            f"Data (t): {clock.data.mean:.3f} Batch (t): {clock.batch.mean:.3f}, "
            f"{line['samples_per_second']:#g}/s, {line['samples_per_second_per_gpu']:#g}/s/gpu "
            f"LR: {line['lr']:5f} Logit Scale: {line['scale']:.3f} Loss: {line['loss']:#.5g}"
            + learned_summary(statistics)
        )


@dataclass(frozen=True)
class _Counters:
    """What has added up over a run, when a line is logged."""

    steps: int = 0
    store_wait_seconds: float = 0.0
    exchange_wait_seconds: float = 0.0
    exchange_bytes: int = 0

    def since(self, before: _Counters) -> dict[str, float]:
        """Waiting since the last line; bytes that this rank has received in a step."""
        steps = max(self.steps - before.steps, 1)
        return {
            "store_wait_seconds": self.store_wait_seconds - before.store_wait_seconds,
            "exchange_wait_seconds": self.exchange_wait_seconds - before.exchange_wait_seconds,
            "exchange_bytes": (self.exchange_bytes - before.exchange_bytes) / steps,
        }


class _Clock:
    """Seconds that a step takes, and seconds of it that it waits for data."""

    def __init__(self) -> None:
        self.data, self.batch = Average(), Average()
        self._start = time.monotonic()

    def data_arrived(self) -> None:
        self.data.add(time.monotonic() - self._start)

    def step_ended(self) -> None:
        now = time.monotonic()
        self.batch.add(now - self._start)
        self._start = now

    def restart(self) -> None:
        self._start = time.monotonic()

    def reset(self) -> None:
        self.data.reset()
        self.batch.reset()


def _exhaust(iterator: Iterator[Batch]) -> None:
    """Batches that do not fill a step: open_clip leaves them out too, and the data workers must come to an end."""
    for _ in iterator:
        pass
