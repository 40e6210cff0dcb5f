"""Pictures alone: CIFAR-10 and CIFAR-100, balanced and long-tailed, the nine methods of the paper.

A tiny backbone, views of 24 pixels, bfloat16 and few epochs, so that two cores can do it. Four trials for each
method with one seed and half of the epochs, measured on pictures that are kept apart from the training part; the
best one with three new seeds on all training pictures, measured on the test pictures. Long-tailed data comes first:
it is the paper's point. The balanced sets take the settings that were chosen on it, and as many steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grid import DataSet, Flags, Method, Run, settings

TASK = "unimodal"
SEEDS = (0, 1, 2)
UNTRAINED = "untrained"  # a row of the tables: one epoch of learning rate 0
IMBALANCE = 100
EPOCHS = {"cifar10-lt": 8, "cifar100-lt": 8, "cifar10": 2, "cifar100": 2}
COMMON: Flags = {
    "backbone": "tiny",
    "stem": "cifar",
    "projector": "256-256-256",
    "image_size": 24,
    "batch_size": 128,
    "opt": "adamw",
    "wd": 1e-4,
    "warmup_epochs": 0.5,
    "precision": "amp_bf16",
}


def data_sets() -> dict[str, DataSet]:
    """In the order in which they are studied."""
    found = {}
    for name, epochs in EPOCHS.items():
        long_tailed = name.endswith("-lt")
        flags = {**COMMON, "epochs": epochs, **({"imbalance": IMBALANCE} if long_tailed else {})}
        tuned_on = None if long_tailed else f"views-{name}-lt"
        folder = name.removesuffix("-lt")
        found[f"views-{name}"] = DataSet(f"views-{name}", folder, TASK, flags, tuned_on=tuned_on)
    return found


def trial_epochs(data_set: DataSet) -> int:
    """Of a run by which a setting is chosen."""
    return max(1, int(data_set.flags["epochs"]) // 2)


def methods(_: DataSet) -> dict[str, Method]:
    """By name: two learning rates, and two values of what matters most for the method.

    In so few visits a temperature does not come far: iSogCLR is offered where it starts, SogCLR and SimCLR the same
    values to stay at. Its ρ is the paper's for long-tailed data.
    """
    rates = (0.001, 0.003)
    trials: dict[str, tuple[Mapping[str, Any], ...]] = {
        "simclr": settings(lr=rates, simclr_temperature=(0.2, 0.5)),
        "barlow-twins": settings(lr=rates, barlow_twins_redundancy_weight=(0.0051, 0.02)),
        "flatclr": settings(lr=rates, flatclr_temperature=(0.1, 0.3)),
        "spectral": settings(lr=rates, spectral_squared_norm=(1.0, 3.0)),
        "sogclr": settings(lr=rates, sogclr_temperature=(0.2, 0.5)),
        "vicreg": settings(lr=rates, vicreg_covariance_weight=(1.0, 5.0)),
        "simco": settings(lr=rates, simco_temperature=(0.1, 0.3)),
        "isogclr": settings(lr=rates, isogclr_rho=(0.4,), isogclr_temperature_init=(0.2, 0.5)),
        "tau-simclr": settings(lr=rates, tau_simclr_temperature=(0.1, 0.3)),
    }
    return {name: Method(name, name, found) for name, found in trials.items()}


def untrained(data_set: DataSet) -> Iterator[Run]:
    """What the backbone is worth as it was drawn, with means and variances of its normalisation from one epoch."""
    for seed in SEEDS:
        yield Run("compare", data_set, UNTRAINED, "simclr", {"epochs": 1, "lr": 0.0}, seed, "test")
