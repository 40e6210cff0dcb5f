"""What is said about a step: its time, its statistics, a line of the log in open_clip's words."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from isogclr.distributed import Ranks
from isogclr.losses import ContrastiveLoss
from training.steps.metric_log import MetricLog, learned_summary
from training.steps.optimization import Optimization
from training.steps.progress import Progress
from training.steps.step import StepResult
from training.store.state_table import StateTable


class StepReporter:
    """Watches the steps of a run and reports every n-th of them.

    Args:
        loss, optimization, table: of the loop.
        metrics: where the numbers go.
        ranks: statistics are means over them.
        samples_per_epoch: of all ranks, as open_clip counts them.
        samples_per_step: of one rank.
        every_n_steps: as open_clip's flag; the last step of an epoch is always reported.
    """

    def __init__(
        self,
        loss: ContrastiveLoss,
        optimization: Optimization,
        table: StateTable,
        metrics: MetricLog,
        ranks: Ranks,
        samples_per_epoch: int,
        samples_per_step: int,
        every_n_steps: int,
        first_step: int,
    ) -> None:
        self._loss = loss
        self._optimization = optimization
        self._table = table
        self._metrics = metrics
        self._ranks = ranks
        self._samples_per_epoch = samples_per_epoch
        self._samples_per_step = samples_per_step
        self._every_n_steps = every_n_steps
        self._kept_rows: Tensor | None = None
        self._reported = _Counters(first_step)
        self._clock = _Clock()

    def begin(self) -> None:
        """An epoch begins."""
        self._clock = _Clock()

    def data_arrived(self) -> None:
        self._clock.data_arrived()

    def restart(self) -> None:
        """The next step's time begins here."""
        self._clock.restart()

    def count_kept_rows(self, result: StepResult) -> None:
        """Rows whose new state was not finite; on the device, so that no step waits for it."""
        not_finite = result.output.details.get("not_finite")
        if not_finite is not None:
            count = not_finite.sum()
            self._kept_rows = count if self._kept_rows is None else self._kept_rows + count

    def step_ended(self, result: StepResult, progress: Progress, number: int, is_last: bool) -> None:
        """A step, the n-th since `begin`, has ended."""
        self._clock.step_ended()
        if number % self._every_n_steps == 0 or is_last:
            self._report(result, progress)

    def _report(self, result: StepResult, progress: Progress) -> None:
        """All ranks: statistics are means over them. The only place where a step waits for the device."""
        statistics = self._statistics(result)
        counted = _Counters(
            progress.step,
            self._table.store.wait_seconds,
            self._table.wait_seconds,
            self._table.ranks.bytes_received,
        )
        per_second = self._samples_per_step / max(self._clock.batch.last, 1e-9)
        scale = result.scalars.get("logit_scale")
        line = {
            "data_time": self._clock.data.last,
            "batch_time": self._clock.batch.last,
            "samples_per_second": per_second * self._ranks.size,
            "samples_per_second_per_gpu": per_second,
            **({} if scale is None else {"scale": float(scale)}),
            "lr": self._optimization.lr,
            **counted.since(self._reported),
            **statistics,
        }
        self._reported = counted
        seen = round(progress.fraction * self._samples_per_epoch)
        self._write_line(line, statistics, progress, seen)
        record = {
            "epoch": progress.epoch + progress.fraction,
            "samples": progress.epoch * self._samples_per_epoch + seen,
        }
        self._metrics.train(progress.step - 1, line, record)
        self._clock.reset()

    def _statistics(self, result: StepResult) -> dict[str, float]:
        own = {"loss": result.output.loss.detach()} | self._loss.statistics(result.output)
        own.pop("kept_rows", None)
        values = torch.stack([value.to(torch.float32) for value in own.values()])
        if self._loss.averages_over_ranks:
            values = self._ranks.sum(values) / self._ranks.size
        found = dict(zip(own, values.tolist(), strict=True))
        if self._kept_rows is not None:
            found["kept_rows"] = float(self._ranks.sum(self._kept_rows))
            self._kept_rows = None
        if not self._loss.averages_over_ranks:
            found["contrastive_loss"] = found["loss"]  # what open_clip calls it
        return found

    def _write_line(
        self, line: dict[str, float], statistics: dict[str, float], progress: Progress, seen: int
    ) -> None:
        if self._ranks.rank != 0:
            return
        total, clock = self._samples_per_epoch, self._clock
        digits = math.ceil(math.log10(total + 1))
        scale = f"Logit Scale: {line['scale']:.3f} " if "scale" in line else ""
        logging.info(
            f"Train Epoch: {progress.epoch} [{seen:>{digits}}/{total} ({100 * progress.fraction:.0f}%)] "
            f"Data (t): {clock.data.mean:.3f} Batch (t): {clock.batch.mean:.3f}, "
            f"{line['samples_per_second']:#g}/s, {line['samples_per_second_per_gpu']:#g}/s/gpu "
            f"LR: {line['lr']:5f} {scale}Loss: {line['loss']:#.5g}" + learned_summary(statistics)
        )


@dataclass(frozen=True)
class _Counters:
    """What has added up over a run, when a line is logged."""

    steps: int = 0
    store_wait_seconds: float = 0.0
    exchange_wait_seconds: float = 0.0
    exchange_bytes: int = 0

    def since(self, before: _Counters) -> dict[str, float]:
        """Waiting since the last line; bytes per step that this rank has received."""
        steps = max(self.steps - before.steps, 1)
        return {
            "store_wait_seconds": self.store_wait_seconds - before.store_wait_seconds,
            "exchange_wait_seconds": self.exchange_wait_seconds - before.exchange_wait_seconds,
            "exchange_bytes": (self.exchange_bytes - before.exchange_bytes) / steps,
        }


class _Average:
    """The last value and the mean of all since the last reset."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.last, self._sum, self._count = 0.0, 0.0, 0

    def add(self, value: float) -> None:
        self.last = value
        self._sum += value
        self._count += 1

    @property
    def mean(self) -> float:
        return self._sum / max(self._count, 1)


class _Clock:
    """Seconds that a step takes, and seconds of it that it waits for data."""

    def __init__(self) -> None:
        self.data, self.batch = _Average(), _Average()
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
