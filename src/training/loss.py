"""From the flags of a loss to the loss."""

from __future__ import annotations

from collections.abc import Callable

from isogclr.config import LossConfig
from isogclr.distributed import Ranks
from isogclr.errors import ConfigError
from isogclr.losses import ContrastiveLoss, loss_class
from training.settings import LossSettings


def loss_configuration(settings: LossSettings, decay_steps: int) -> LossConfig | None:
    """The configuration of one of our losses; None for open_clip's."""
    config_class = loss_class(settings.name).config_class
    if config_class is None:
        return None
    options = dict(settings.options)
    if options.get("gamma_schedule") == "cosine":
        options["gamma_decay_steps"] = decay_steps
    elif settings.gamma_decay_epochs is not None:
        raise ConfigError([f"--{settings.name}-gamma-decay-epochs needs --{settings.name}-gamma-schedule cosine"])
    return config_class(**options)


def create_loss(settings: LossSettings, ranks: Ranks, steps_per_epoch: int, epochs: int) -> ContrastiveLoss:
    """The loss, with a γ schedule that knows the length of the run."""
    decay_epochs = epochs / 2 if settings.gamma_decay_epochs is None else settings.gamma_decay_epochs
    config = loss_configuration(settings, max(1, round(decay_epochs * steps_per_epoch)))
    kind: Callable[..., ContrastiveLoss] = loss_class(settings.name)
    if config is None:
        return kind(ranks=ranks, **settings.options)
    return kind(config, ranks=ranks)
