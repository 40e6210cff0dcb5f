"""Ordinary mistakes on a command line: numbers out of range, names that do not exist, patterns without quotes.

All of them would end a run later, after minutes of start-up and with a traceback of somebody else's code.
"""

from __future__ import annotations

import math
import os
from argparse import Namespace
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path

import open_clip
import torch

from isogclr.errors import ConfigError
from isogclr.models import model_configs
from training import open_clip_bridge as bridge
from training.params.loss_flags import LOSS_CONFIGS
from training.params.values import stores, trains

_NOT_NEGATIVE = ("lr", "wd", "eps", "warmup", "grad_clip_norm")
_BELOW_ONE = ("beta1", "beta2")
_SEEDS = 1 << 31
_LONGEST_NAME_BYTES = 255  # of a file or folder, on every file system in use


def refuse_expanded_patterns(rest: Sequence[str]) -> None:
    """A shell writes the files of a pattern in its place, and open_clip takes only the first."""
    for flag in ("--train-data", "--val-data"):
        for place in (number for number, word in enumerate(rest) if word == flag):
            words = list(takewhile(lambda word: not word.startswith("-"), rest[place + 1 :]))
            if len(words) > 1:
                problem = (
                    f"{flag}: found {len(words):,} words, {words[0]} … {words[-1]}, expected one pattern: quote "
                    f"it, so that the shell does not expand it, and write braces, as in 'shard-{{000..099}}.tar'"
                )
                raise ConfigError([problem])


def mistakes(ours: Namespace, theirs: Namespace) -> list[str]:
    """By flag and reason."""
    return [
        *_numbers(theirs),
        *device_problems(theirs),
        *_model(theirs),
        *_pretrained(theirs),
        *folder_problems(theirs),
        *_patterns(theirs),
        *_batch(ours, theirs),
    ]


def _numbers(theirs: Namespace) -> list[str]:
    found = []
    for name in (*_NOT_NEGATIVE, *_BELOW_ONE):
        value = getattr(theirs, name)
        if value is None:
            continue
        limit = 1.0 if name in _BELOW_ONE else math.inf
        if not 0 <= value < limit:
            expected = "a number in [0, 1)" if name in _BELOW_ONE else "0 or more, and finite"
            found.append(f"--{name.replace('_', '-')} is {value}, but must be {expected}")
    return [*found, *seed_problems(theirs)]


def seed_problems(values: Namespace) -> list[str]:
    """numpy takes 32 bits; the rank and the step are added to it."""
    if 0 <= values.seed < _SEEDS:
        return []
    return [f"--seed is {values.seed}, but must be 0 or more, and below {_SEEDS:,}"]


def device_problems(theirs: Namespace) -> list[str]:
    try:
        device = torch.device(theirs.device)
    except RuntimeError:
        return [f"--device is {theirs.device}, which is no device of torch: write cpu, cuda, cuda:1 or mps"]
    count = torch.cuda.device_count()
    if device.type == "cuda" and device.index is not None and device.index >= count:
        return [f"--device is {theirs.device}, but torch sees {count} CUDA devices here, counted from 0"]
    return []


def _model(theirs: Namespace) -> list[str]:
    kind, separator, place = theirs.model.partition(":")
    config = Path(place) / "open_clip_config.json"
    if separator and kind == "local-dir" and not config.is_file():
        return [f"--model {theirs.model}: there is no {config}; name a folder that has one"]
    if separator:
        return []
    model_configs.register()
    names = open_clip.list_models()
    if theirs.model.replace("/", "-") in names:
        return []
    return [f"--model {theirs.model} is not known to open_clip{_nearest(theirs.model, names)}"]


def _pretrained(theirs: Namespace) -> list[str]:
    given = theirs.pretrained
    if not given or ":" in theirs.model or Path(given).is_file():  # models of a folder bring their weights
        return []
    tags = open_clip.list_pretrained_tags_by_model(theirs.model.replace("/", "-"))
    if open_clip.get_pretrained_cfg(theirs.model.replace("/", "-"), given):
        return []
    known = f"tags of --model {theirs.model}: {', '.join(tags)}" if tags else f"--model {theirs.model} has no tags"
    return [f"--pretrained {given} is neither a file nor a tag{_nearest(given, tags)} ({known})"]


def _nearest(word: str, names: Iterable[str]) -> str:
    by_lower_case = {name.lower(): name for name in names}
    close = get_close_matches(word.lower(), by_lower_case, n=1)
    return f": did you mean {by_lower_case[close[0]]}?" if close else ""


def folder_problems(theirs: Namespace) -> list[str]:
    """Where the run is to live, as far as it can be told without writing there."""
    found = []
    if theirs.name is not None:
        name = Path(theirs.name)
        if not theirs.name.isprintable() or not theirs.name.strip():
            found.append(
                f"--name {theirs.name!r} is empty, or has characters that a terminal obeys: use letters and numbers"
            )
        elif name.is_absolute() or ".." in name.parts or not name.parts:
            found.append(f"--name {theirs.name} leaves --logs: give a name below it, and the folder with --logs")
        if any(len(os.fsencode(part)) > _LONGEST_NAME_BYTES for part in name.parts):
            found.append(
                f"--name {theirs.name[:20]}… has {len(os.fsencode(theirs.name)):,} bytes, but a folder's name has "
                f"at most {_LONGEST_NAME_BYTES}: shorten it"
            )
    if stores(theirs):
        logs = Path(theirs.logs).absolute()
        there = next(folder for folder in (logs, *logs.parents) if os.path.exists(folder))  # noqa: PTH110 (no error)
        if not there.is_dir():
            found.append(f"--logs {theirs.logs}: {there} is a file; give a folder")
    return found


def _patterns(theirs: Namespace) -> list[str]:
    return [
        f"{flag} {value}: a * is not expanded; write braces, as in 'shard-{{000..099}}.tar'"
        for flag, value in (("--train-data", theirs.train_data), ("--val-data", theirs.val_data))
        if value and "*" in value and not value.startswith("pipe:") and not Path(value).exists()
    ]


def _batch(ours: Namespace, theirs: Namespace) -> list[str]:
    """Found by the losses too, but only when the first batch has come."""
    if ours.loss not in LOSS_CONFIGS or not trains(theirs) or theirs.batch_size * theirs.accum_freq != 1:
        return []
    if bridge.ranks_of_environment() > 1:
        return []
    return [f"--batch-size is 1 on one rank, but --loss {ours.loss} needs 2 or more: one pair has no negatives"]
