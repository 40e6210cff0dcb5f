"""From the flags of a loss to the loss."""

from __future__ import annotations

from collections.abc import Callable

from isogclr.config import PRESETS, LossConfig
from isogclr.distributed import Ranks
from isogclr.errors import ConfigError
from isogclr.losses import VIEW_DIRECTIONS, ContrastiveLoss, loss_class, view_loss_class
from training.settings import LossSettings

Find = Callable[[str], type[ContrastiveLoss]]


def loss_configuration(settings: LossSettings, decay_steps: int, find: Find = loss_class) -> LossConfig | None:
    """The configuration of one of our losses; None for open_clip's.

    Args:
        find: the loss of a name: `loss_class`, or `view_loss_class`.
    """
    config_class = find(settings.name).config_class
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
    config = loss_configuration(settings, _decay_steps(settings, steps_per_epoch, epochs))
    kind: Callable[..., ContrastiveLoss] = loss_class(settings.name)
    if config is None:
        return kind(ranks=ranks, **settings.options)
    return kind(config, ranks=ranks)


def create_view_loss(settings: LossSettings, ranks: Ranks, steps_per_epoch: int, epochs: int) -> ContrastiveLoss:
    """The same for two views of each picture."""
    decay_steps = _decay_steps(settings, steps_per_epoch, epochs)
    config = loss_configuration(settings, decay_steps, view_loss_class)
    kind: Callable[..., ContrastiveLoss] = view_loss_class(settings.name)
    return kind(config, ranks=ranks, directions=VIEW_DIRECTIONS)


def described(settings: LossSettings) -> str:
    """For the log: which loss, by which preset, and what was given beside it."""
    if settings.preset is None:
        return f"Loss: {settings.name}"
    of_preset = PRESETS[settings.preset]
    given = {name: value for name, value in settings.options.items() if of_preset.get(name) != value}
    beside = "".join(f", {name} {value}" for name, value in sorted(given.items()))
    return f"Loss: {settings.name}, preset {settings.preset}{beside}"


def _decay_steps(settings: LossSettings, steps_per_epoch: int, epochs: int) -> int:
    decay_epochs = epochs / 2 if settings.gamma_decay_epochs is None else settings.gamma_decay_epochs
    return max(1, round(decay_epochs * steps_per_epoch))
