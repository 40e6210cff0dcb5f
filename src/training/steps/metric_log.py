"""Metrics of a run: to the log in open_clip's words, to TensorBoard, to W&B, and to metrics.jsonl."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isogclr.state.faults import storage_errors
from training.settings import RunSettings

METRICS_FILE = "metrics.jsonl"
_SUMMARIZED = ("mean", "q05", "q50", "q95", "at_minimum", "at_maximum")  # of the temperatures of a direction


def learned_summary(statistics: Mapping[str, float]) -> str:
    """What the loss has learned about its samples, for one line of the log; all of it is in metrics.jsonl."""
    parts = [f"Objective: {statistics['objective']:#.5g}"] if "objective" in statistics else []
    for name in statistics:
        direction, found, _ = name.partition(".temperature.mean")
        if found:
            value = {end: statistics[f"{direction}.temperature.{end}"] for end in _SUMMARIZED}
            quantiles = " ".join(f"{value[end]:.3g}" for end in ("q05", "q50", "q95"))
            at_bounds = "/".join(f"{100 * value[end]:.0f}" for end in ("at_minimum", "at_maximum"))
            parts.append(f"τ {direction}: {value['mean']:.4g} ({quantiles}; {at_bounds}% at bounds)")
    if statistics.get("kept_rows"):
        parts.append(f"Not finite: {statistics['kept_rows']:.0f} rows kept")
    return "".join(f" {part}" for part in parts)


class MetricLog:
    """Where metrics go. Every rank has one; only the first rank's does anything.

    Args:
        folder: of the run; None stores nothing.
        settings: which reports were asked for.
        is_first: whether this is rank 0.
        name: of the run.
        config: of the run, for W&B.
    """

    def __init__(
        self, folder: Path | None, settings: RunSettings, is_first: bool, name: str, config: Mapping[str, Any]
    ) -> None:
        self._path = folder / METRICS_FILE if folder is not None and is_first else None
        if self._path is not None:
            with storage_errors(self._path, "write metrics"):
                _end_last_line(self._path)
        self.writer = self._tensorboard(folder) if settings.tensorboard and is_first and folder else None
        self._wandb = self._start_wandb(settings, name, config) if settings.wandb and is_first else None

    def start(self, step: int, resumed_from: str | None) -> None:
        """A mark in metrics.jsonl: after it, lines of the same step replace earlier ones."""
        self._append({"kind": "start", "step": step, "resumed_from": resumed_from})

    def train(self, step: int, values: Mapping[str, float], record: Mapping[str, Any]) -> None:
        """The metrics of one step, with what only metrics.jsonl keeps (`record`)."""
        named = {f"train/{name}": value for name, value in values.items()}
        self._scalars(named, step)
        if self._wandb is not None:
            self._wandb.log({**named, "step": step}, step=step)
        self._append({"kind": "train", "step": step, **record, **values})

    def validation(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Metrics of an evaluation; open_clip's own code has written those to the log and to TensorBoard."""
        if not values:
            return
        if self._wandb is not None:
            self._wandb.log({**{f"val/{name}": value for name, value in values.items()}, "epoch": epoch}, step=step)
        self._append({"kind": "val", "step": step, **values, "epoch": epoch})

    def suite(self, epoch: int, values: Mapping[str, float]) -> None:
        """Metrics of a suite of `isogclr eval`, to the log and to TensorBoard; `validation` does the rest."""
        logging.info(f"Eval Epoch: {epoch} " + "\t".join(f"{name}: {value:.4f}" for name, value in values.items()))
        self._scalars({f"val/{name}": value for name, value in values.items()}, epoch)

    def distribution(self, step: int, epoch: int, record: Mapping[str, Any]) -> None:
        """A histogram of a column of the store."""
        self._append({"kind": "distribution", "step": step, "epoch": epoch, **record})

    def divergence(self, step: int, values: Mapping[str, Any]) -> None:
        """The run has diverged. Who goes on from an earlier step forgets this line, as all of later steps."""
        self._append({"kind": "divergence", "step": step, **values})

    def rollback(self, step: int, values: Mapping[str, Any]) -> None:
        """The run goes back to this step."""
        self._append({"kind": "rollback", "step": step, **values})

    def close(self) -> None:
        if self.writer is not None:
            with storage_errors(Path(self.writer.log_dir), "write events for TensorBoard"):
                self.writer.close()
        if self._wandb is not None:
            self._wandb.finish()

    def _append(self, record: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        plain = {name: _plain(value) for name, value in {**record, "time": time.time()}.items()}
        with storage_errors(self._path, "write metrics"), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain) + "\n")

    def _scalars(self, values: Mapping[str, float], step: int) -> None:
        if self.writer is not None:
            with storage_errors(Path(self.writer.log_dir), "write events for TensorBoard"):
                for name, value in values.items():
                    self.writer.add_scalar(name, value, step)

    @staticmethod
    def _tensorboard(folder: Path) -> Any:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 (optional, slow to import)

        with storage_errors(folder / "tensorboard", "write events for TensorBoard"):
            return SummaryWriter(str(folder / "tensorboard"))

    @staticmethod
    def _start_wandb(settings: RunSettings, name: str, config: Mapping[str, Any]) -> Any:
        import wandb  # noqa: PLC0415 (optional)

        return wandb.init(
            project=settings.wandb_project,
            name=name,
            id=name,
            notes=settings.wandb_notes,
            resume="auto" if settings.resume == "latest" else None,
            config=dict(config),
        )


def _end_last_line(path: Path) -> None:
    """A run that was killed may have left a part of a line, which would swallow the next one."""
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb+") as file:
        file.seek(-1, os.SEEK_END)
        if file.read(1) != b"\n":
            file.write(b"\n")


def _plain(value: Any) -> Any:
    """JSON knows no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
