"""What is run: data sets with their recipes, methods with their knobs, and a run as a value."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Flags = Mapping[str, Any]


@dataclass(frozen=True)
class DataSet:
    """Prepared shards, and how everything is trained on them.

    Args:
        folder: below the folder of all data: `train-*.tar`, `validation-*.tar`, `test-*.tar`, `sizes.json`.
        task: `retrieval` (recall between pictures and captions), `zero-shot` (needs `classes.json`), or
            retrieval in memory: `features` (heads on frozen features) or `icons` (from scratch), or `unimodal`: two
            views of pictures, linear evaluation.
        flags: of `training.main`; `{folder}` stands for the folder.
        fixed_pictures: no augmentation, so that an example can be kept from epoch to epoch.
        train_shards: only the first so many; None takes all.
        tuned_on: name of another data set whose trials choose the settings; None has trials of its own.
    """

    name: str
    folder: str
    task: str
    flags: Flags
    fixed_pictures: bool = False
    train_shards: int | None = None
    tuned_on: str | None = None

    @property
    def metric(self) -> str:
        """What settings are chosen by."""
        return "mean_per_class" if self.task in ("zero-shot", "unimodal") else "mean_recall"


@dataclass(frozen=True)
class Method:
    """A loss with the settings among which one is chosen, the same number for every method."""

    name: str
    loss: str
    trials: tuple[Flags, ...]


@dataclass(frozen=True)
class Run:
    """One call of `training.main` and what is measured after it."""

    part: str
    data_set: DataSet
    method: str
    loss: str
    setting: Flags
    seed: int
    split: str
    curve: bool = False  # measure after some epochs too
    semantics: bool = False  # measure what the temperatures say about the data

    @property
    def flags(self) -> dict[str, Any]:
        """All that differ from the defaults. iSogCLR on pairs starts from the paper's preset if none is named."""
        preset = {"isogclr_preset": "paper"} if self.loss == "isogclr" and self.data_set.task != "unimodal" else {}
        return {**preset, **self.data_set.flags, **self.setting}

    @property
    def setting_text(self) -> str:
        return setting_text(self.setting)

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies it in the table of results."""
        return (self.part, self.data_set.name, self.method, self.setting_text, str(self.seed), self.split)

    @property
    def folder(self) -> str:
        digest = hashlib.sha256("\n".join(self.key).encode()).hexdigest()[:10]
        return f"{self.data_set.name}-{self.method}-{self.seed}-{digest}".replace(" ", "_")


def setting_text(setting: Flags) -> str:
    """As the table of results has it."""
    return " ".join(f"{name}={value}" for name, value in sorted(setting.items())) or "defaults"


def settings(**choices: tuple[Any, ...]) -> tuple[Flags, ...]:
    """All combinations of the values of some flags."""
    found: list[dict[str, Any]] = [{}]
    for name, values in choices.items():
        found = [{**one, name: value} for one in found for value in values]
    return tuple(found)
