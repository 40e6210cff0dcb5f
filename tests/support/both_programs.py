"""Runs of `training.main` and of open_clip's program side by side, and what they leave behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from support.micro_run import Job, arguments, start, write_model
from support.shard_writing import write_noise_shards

OURS, THEIRS = "training.main", "support.open_clip_reference"
SIZES = (20, 12, 30, 26)  # uneven: on two ranks, one begins again while the other is not through
STEPS_PER_EPOCH = 11
# Torch's crop may leave no pixel out: it still draws numbers, but they change nothing.
WHOLE_IMAGE = ("scale=(1.0,1.0)",)


@dataclass(frozen=True)
class Case:
    """A set-up in which both programs run for two epochs.

    Args:
        name: for the folders of the runs.
        loss: of ours; open_clip gets --siglip or nothing.
        flags: for both programs.
    """

    name: str
    loss: str = "clip"
    ranks: int = 1
    dropout: bool = False
    flags: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Runs:
    """Runs of both programs on the same shards; each pair is made once."""

    folder: Path
    data: str = ""
    models: dict[bool, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = write_noise_shards(self.folder / "shards", SIZES)
        self.models = {kind: write_model(self.folder / f"model-{kind}", 0.1 * kind) for kind in (False, True)}

    def both(self, case: Case) -> tuple[Path, Path]:
        """The folders of finished runs, ours and theirs, that were made side by side."""
        folders = {module: self.folder / f"{module}-{case.name}" for module in (OURS, THEIRS)}
        jobs = [self._start(module, case, path.name) for module, path in folders.items() if not path.exists()]
        for job in jobs:
            assert job.wait() == [0] * case.ranks, job.text
        return folders[OURS], folders[THEIRS]

    def run(self, module: str, case: Case, name: str, **flags: Any) -> Path:
        """The folder of one run."""
        job = self._start(module, case, name, **flags)
        assert job.wait() == [0] * case.ranks, job.text
        return self.folder / name

    def _start(self, module: str, case: Case, name: str, **flags: Any) -> Job:
        loss: dict[str, Any] = {"siglip": case.loss == "siglip"} if module == THEIRS else {"loss": case.loss}
        values = {
            "epochs": 2,
            "seed": 3,
            "warmup": 3,
            "train_num_samples": sum(SIZES),
            "aug_cfg": WHOLE_IMAGE,
            "report_to": "tensorboard",
            **case.flags,
            **flags,
            **loss,
        }
        data = values.pop("train_data", self.data)
        line = arguments(self.models[case.dropout], data, self.folder, name, **values)
        return start(line, self.folder / "output", ranks=case.ranks, module=module)


def scalars(folder: Path, name: str) -> dict[int, float]:
    """What a run has logged at each step, as TensorBoard keeps it: float32, not the digits of the log."""
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {event.step: event.value for event in events.Scalars(f"train/{name}")}


def checkpoint(folder: Path, epoch: int = 2) -> dict[str, Any]:
    """The content of epoch_N.pt, loaded without running code from it."""
    content: dict[str, Any] = torch.load(folder / "checkpoints" / f"epoch_{epoch}.pt", weights_only=True)
    return content
