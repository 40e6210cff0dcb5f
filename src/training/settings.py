"""What a run is asked to do, as frozen values. `params.py` makes them from flags, which nobody else reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.data_config import DataConfig


@dataclass(frozen=True)
class ModelSettings:
    """Arguments of open_clip's model factory, and what is done to the model afterwards."""

    name: str
    pretrained: str
    precision: str
    text_model: Path | None = None
    factory_options: Mapping[str, Any] = field(default_factory=dict)
    lock_image: bool = False
    lock_image_unlocked_groups: int = 0
    lock_image_freeze_bn_stats: bool = False
    lock_text: bool = False
    lock_text_unlocked_layers: int = 0
    lock_text_freeze_layer_norm: bool = False
    grad_checkpointing: bool = False
    use_bn_sync: bool = False
    ddp_static_graph: bool = False
    torchcompile: bool = False
    use_bnb_linear: str | None = None


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW or a timm optimizer, its learning rate over the run, and the gradient's norm."""

    name: str
    lr: float | None
    beta1: float | None
    beta2: float | None
    eps: float | None
    weight_decay: float
    momentum: float | None
    scheduler: str
    warmup_steps: int
    skip_scheduler: bool
    epochs_cooldown: int | None
    cooldown_power: float
    cooldown_end: float
    grad_clip_norm: float | None


@dataclass(frozen=True)
class LossSettings:
    """Which loss, with the options that were given; the others have the defaults of its configuration.

    Args:
        options: fields of the loss's configuration, or arguments of open_clip's loss.
        gamma_decay_epochs: length of a cosine γ; None is half of the run.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    gamma_decay_epochs: float | None = None


@dataclass(frozen=True)
class RunSettings:
    """The run itself: where it lives, how long it is, what it saves and says."""

    name: str | None
    logs: Path | None  # None: nothing is stored
    epochs: int
    seed: int
    resume: str | None
    save_frequency: int
    save_every_n_steps: int | None
    save_most_recent: bool
    delete_previous_checkpoint: bool
    log_every_n_steps: int
    log_local: bool
    debug: bool
    tensorboard: bool
    wandb: bool
    wandb_project: str
    wandb_notes: str
    copy_codebase: bool
    index: Path | None
    state_dir: Path | None


@dataclass(frozen=True)
class EvaluationSettings:
    """A suite of `isogclr eval` that is measured in training; None measures none."""

    suite: str | None
    datasets: tuple[str, ...]  # instead of the suite's own
    data_root: Path | None
    every_n_epochs: int
    batch_size: int
    workers: int


@dataclass(frozen=True)
class Settings:
    """Everything that the command line says.

    Args:
        notices: what the user should be told about flags that mean something else here; logged at the start.
    """

    run: RunSettings
    data: DataConfig | None  # None: evaluation only
    model: ModelSettings
    optimizer: OptimizerSettings
    loss: LossSettings
    evaluation: EvaluationSettings
    notices: tuple[str, ...] = ()
