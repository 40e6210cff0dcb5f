"""The settings of the paper's unimodal experiments, by data set; docs/unimodal.md says where each has its source.

A preset holds values of flags. What is given on the command line wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isogclr import demo_data
from training.settings import DivergenceSettings

# Without a preset, and where a preset is silent: the paper's settings for CIFAR.
DEFAULTS: Mapping[str, Any] = {
    "loss": "isogclr",
    "data": None,
    "val_data": None,
    "label": "cls",
    "imbalance": None,
    "imbalance_seed": 0,
    "backbone": "resnet18",
    "stem": None,
    "projector": "8192-8192-8192",
    "image_size": 32,
    "batch_size": 128,
    "accum_freq": 1,
    "epochs": 400,
    "opt": "lars",
    "lr": 0.8,
    "wd": 1e-4,
    "momentum": 0.9,
    "nesterov": False,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "warmup_epochs": 10.0,
    "grad_clip_norm": None,
    "precision": None,
    "workers": 4,
    "device": "cuda",
    "sync_bn": False,
    "seed": 0,
    "logs": "./logs/",
    "name": None,
    "resume": None,
    "save_frequency": 10,
    "save_every_n_steps": None,
    "save_most_recent": False,
    "delete_previous_checkpoint": False,
    "val_frequency": 1,
    "log_every_n_steps": 100,
    "log_local": False,
    "report_to": "",
    "wandb_project_name": "isogclr",
    "wandb_notes": "",
    "debug": False,
    "copy_codebase": False,
    "max_bad_steps": DivergenceSettings().max_bad_steps,
    "on_divergence": "stop",
    "rollback_lr_factor": None,
    "max_rollbacks": None,
    "index": None,
    "isogclr_state_dir": None,
}


@dataclass(frozen=True)
class Preset:
    """Values of flags, and options of losses."""

    flags: Mapping[str, Any]
    losses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def _paper(
    rho: float, simclr_temperature: float | None = None, *, large: bool = False, imbalance: float | None = None
) -> Preset:
    """Section 4.2. ρ is the best of appendix table "Effect of ρ", SimCLR's τ that of "The effect of τ"."""
    flags: dict[str, Any] = {"imbalance": imbalance}
    if large:
        flags |= {"backbone": "resnet50", "image_size": 224, "lr": 1.2, "batch_size": 256, "epochs": 200}
    losses: dict[str, Mapping[str, Any]] = {
        "isogclr": {"rho": rho, "temperature_init": 0.7, "temperature_min": 0.05}
    }
    if simclr_temperature is not None:
        losses["simclr"] = {"temperature": simclr_temperature}
    return Preset(flags, losses)


UNIMODAL_RUN_PRESETS: Mapping[str, Preset] = {
    "cifar10": _paper(0.2, 0.5),
    "cifar100": _paper(0.4, 0.3),
    "cifar10-lt": _paper(0.4, imbalance=100.0),
    "cifar100-lt": _paper(0.4, imbalance=100.0),
    "imagenet100": _paper(0.2, 0.3, large=True),
    "inaturalist": _paper(0.3, large=True),
    # The pictures inside the package, for a minute on two cores: no setting of the paper.
    "demo": Preset(
        {
            "data": demo_data.TRAIN_DATA,
            "val_data": demo_data.TEST_DATA,
            "label": "group",
            "backbone": "tiny",
            "projector": "256-128",
            "batch_size": 64,
            "epochs": 4,
            "opt": "adamw",
            "lr": 2e-3,
            "warmup_epochs": 0.5,
            "workers": 2,
            "val_frequency": 2,
            "log_every_n_steps": 20,
        }
    ),
}
