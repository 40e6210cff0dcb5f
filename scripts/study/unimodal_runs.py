"""A run of `training.unimodal` and what its backbone is worth: linear evaluation and kNN, head, middle and tail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from grid import Run
from unimodal_plan import trial_epochs

from isogclr.evaluation.linear import LinearSettings
from isogclr.evaluation.linear_data import choose_data, open_sets
from isogclr.evaluation.linear_measure import LinearPlan, measure_backbone
from isogclr.evaluation.picture_features import Reading
from isogclr.models.epoch_files import newest_epoch_file
from isogclr.models.view_checkpoints import load_backbone

Rows = list[tuple[str, str, float]]  # epoch, metric, value
# The paper's 30 is for a ResNet-18 after hundreds of epochs; on features of the tiny backbone it does not settle.
LINEAR_RATE = 0.3
PARTS = {"validation": ("tune-train", "tune-test"), "test": ("train", "test")}
NAMES = {"acc1": "accuracy", "mean_per_class_recall": "mean_per_class", "knn_acc1": "knn"}


def command_line(run: Run, data: Path, work: Path) -> list[str]:
    """The arguments of `training.unimodal`."""
    train, _ = PARTS[run.split]
    flags: dict[str, Any] = {
        "loss": run.loss,
        "data": data / train,
        "seed": run.seed,
        "imbalance_seed": 0,
        "logs": work,
        "name": run.folder,
        "resume": "latest",
        "device": "cpu",
        "workers": 0,
        "log_every_n_steps": 50,
        "save_frequency": 0,
        **run.flags,
    }
    if run.part == "tune":
        flags["epochs"] = trial_epochs(run.data_set)
    if "imbalance" not in flags:
        del flags["imbalance_seed"]
    line = []
    for name, value in flags.items():
        line += [f"--{name.replace('_', '-')}", str(value)]
    return line


def train_and_measure(run: Run, data: Path, work: Path) -> Rows:
    """In this process. A run that was cut off goes on where it was."""
    from training.unimodal import main  # noqa: PLC0415 (signals are handled from here on)

    code = main(command_line(run, data, work))
    if code != 0:
        raise SystemExit(code)
    checkpoint = newest_epoch_file(work / run.folder / "checkpoints")
    assert checkpoint is not None
    train, test = PARTS[run.split]
    sets = open_sets(str(data / train), str(data / test), "cls")
    chosen = choose_data(
        sets, float(run.data_set.flags.get("imbalance", 1)), 0, run.data_set.name, work / run.folder
    )
    plan = LinearPlan(LinearSettings(lr=LINEAR_RATE, seed=run.seed), cached=True)
    measured = measure_backbone(load_backbone(checkpoint), chosen, Reading(torch.device("cpu")), plan, print)
    epoch = checkpoint.stem.removeprefix("epoch_")
    return [
        (epoch, NAMES.get(name, name.removesuffix("_recall")), 100 * value)
        for name, value in measured.metrics.items()
    ]
