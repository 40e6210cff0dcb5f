"""Flags of the losses: a `--NAME-OPTION` for every field of a loss's configuration, documented by its metadata."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from isogclr.config import DEFAULT_PRESET, PRESETS, LossConfig, unimodal_defaults
from isogclr.losses import LOSSES, VIEW_LOSSES

# In the order of the help: what this project is about comes first.
LOSS_CONFIGS = {name: loss.config_class for name, loss in reversed(LOSSES.items()) if loss.config_class is not None}
VIEW_LOSS_CONFIGS = {
    name: loss.config_class for name, loss in reversed(VIEW_LOSSES.items()) if loss.config_class is not None
}
# The schedule of γ counts steps, which nobody knows before the data is open: its flag counts epochs.
GAMMA_DECAY = "gamma_decay_epochs"
PRESET = "preset"
LOSSES_WITH_PRESETS = ("isogclr",)


@dataclass(frozen=True)
class LossFlag:
    """A flag and the field that it sets."""

    loss: str
    option: str
    kind: type
    choices: tuple[str, ...] | None
    help: str

    @property
    def flag(self) -> str:
        return f"--{self.loss}-{self.option.replace('_', '-')}"

    @property
    def destination(self) -> str:
        return self.flag[2:].replace("-", "_")


def loss_flags() -> Iterator[LossFlag]:
    """Those of `training.main`, by loss, in the order of the fields."""
    for loss, config in LOSS_CONFIGS.items():
        if loss in LOSSES_WITH_PRESETS:
            meaning = (
                "values of the flags below that are not given; paper is the recipe of the authors' code; "
                f"docs/study.md has the evidence (default: {DEFAULT_PRESET})"
            )
            yield LossFlag(loss, PRESET, str, tuple(PRESETS), meaning)
        yield from _flags_of(loss, config, {})


def view_loss_flags() -> Iterator[LossFlag]:
    """Those of `training.unimodal`, with its defaults."""
    for loss, config in VIEW_LOSS_CONFIGS.items():
        yield from _flags_of(loss, config, unimodal_defaults(loss))


def _flags_of(loss: str, config: type[LossConfig], defaults: Mapping[str, Any]) -> Iterator[LossFlag]:
    hints = typing.get_type_hints(config)
    for field in fields(config):
        if field.name == "gamma_decay_steps":
            meaning = "length of the cosine, in epochs (default: half of the run)"
            yield LossFlag(loss, GAMMA_DECAY, float, None, meaning)
            continue
        kind, choices = _kind(hints[field.name])
        meaning = field.metadata["help"].replace("gamma_decay_steps", GAMMA_DECAY)
        default = defaults.get(field.name, field.default)
        yield LossFlag(loss, field.name, kind, choices, _with_default(meaning, default))


def _kind(hint: object) -> tuple[type, tuple[str, ...] | None]:
    """The type of a flag's value, and its choices if it is one of some words."""
    if typing.get_origin(hint) is typing.Literal:
        return str, tuple(typing.get_args(hint))
    if isinstance(hint, types.UnionType):
        return next(one for one in typing.get_args(hint) if one is not type(None)), None
    assert isinstance(hint, type)
    return hint, None


def _with_default(meaning: str, default: object) -> str:
    """On a command line nobody writes None: what it does is the default."""
    meaning, _, shown = meaning.partition("; None ")
    if default is not None:
        shown = {False: "off", True: "on"}[default] if isinstance(default, bool) else str(default)
    return f"{meaning} (default: {shown})"
