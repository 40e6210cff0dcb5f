"""From the command line of `training.unimodal` to its settings: flags, a preset, defaults, and what is wrong."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isogclr.config import unimodal_defaults
from isogclr.errors import ConfigError, IsogclrError
from isogclr.losses import view_loss_class
from isogclr.models.backbones import SMALL_PICTURE_PIXELS, projector_widths
from isogclr.pictures.long_tail import check_imbalance
from isogclr.shard_index.addresses import local_path
from training import open_clip_bridge as bridge
from training.loss import loss_configuration
from training.params.loss_flags import GAMMA_DECAY, view_loss_flags
from training.params.mistakes import device_problems, folder_problems, seed_problems
from training.params.refusals import divergence_problems, missing_reports, with_flag
from training.params.unimodal_flags import create_unimodal_parser
from training.params.unimodal_presets import DEFAULTS, UNIMODAL_RUN_PRESETS, Preset
from training.params.values import divergence_settings, expanded, reports, stores
from training.settings import (
    PICTURES,
    DataSettings,
    LossSettings,
    NeighbourSettings,
    OptimizerSettings,
    PictureSettings,
    RunSettings,
    UnimodalSettings,
    ViewModelSettings,
)

_ONE_OR_MORE = (
    *("batch_size", "accum_freq", "epochs"),
    *("save_every_n_steps", "val_frequency", "log_every_n_steps", "max_bad_steps", "max_rollbacks"),
)
_NOT_NEGATIVE = ("lr", "wd", "eps", "warmup_epochs", "grad_clip_norm", "workers", "save_frequency")
_BELOW_ONE = ("momentum", "beta1", "beta2")
_LEAST_PIXELS = 2  # the blur needs a neighbour
_WIDEST = 1 << 17  # of a projector's layers; the paper's have 8192
_ONLY_FOR = {
    **dict.fromkeys(("beta1", "beta2", "eps"), ("adamw",)),
    **dict.fromkeys(("momentum", "nesterov"), ("lars", "sgd")),
}


def parse_unimodal(argv: Sequence[str]) -> tuple[UnimodalSettings, dict[str, Any]]:
    """The settings of a run, and all flags by name, for params.txt. Every problem is reported together."""
    line = create_unimodal_parser().parse_args(argv)
    given = {name: value for name, value in vars(line).items() if value is not None}
    preset = UNIMODAL_RUN_PRESETS[given["preset"]] if "preset" in given else Preset({})
    values = Namespace(**{**DEFAULTS, **preset.flags, **given})
    if values.precision is None and not device_problems(values):
        values.precision = "amp" if bridge.is_accelerated(values) else "fp32"
    loss = _loss_settings(values.loss, preset, given)
    problems = [
        *_numbers(values),
        *_data_problems(values),
        *_model_problems(values),
        *_optimizer_problems(values, given),
        *_loss_problems(loss, values, given),
        *device_problems(values),
        *folder_problems(values),
        *divergence_problems(values, values),
        *missing_reports(values),
    ]
    if problems:
        raise ConfigError(problems)
    settings = _settings(values, loss)
    return settings, {**vars(values), "stem": settings.model.stem}


def _numbers(values: Namespace) -> list[str]:
    found = []
    limits = [
        *((name, 1, math.inf, "1 or more") for name in _ONE_OR_MORE),
        ("image_size", _LEAST_PIXELS, math.inf, f"{_LEAST_PIXELS} or more"),
        *((name, 0, math.inf, "0 or more, and finite") for name in _NOT_NEGATIVE),
        *((name, 0, 1, "a number in [0, 1)") for name in _BELOW_ONE),
    ]
    for name, least, limit, expected in limits:
        value = getattr(values, name)
        if value is not None and not least <= value < limit:
            found.append(f"{_flag(name)} is {value}, but must be {expected}")
    if values.warmup_epochs > values.epochs:
        found.append(
            f"--warmup-epochs is {values.warmup_epochs:g}, more than the {values.epochs} of --epochs: use fewer"
        )
    if values.batch_size * values.accum_freq == 1 and bridge.ranks_of_environment() == 1:
        found.append(
            f"--batch-size is 1 on one rank, but --loss {values.loss} needs 2 or more: one picture has no negatives"
        )
    return [*found, *seed_problems(values)]


def _data_problems(values: Namespace) -> list[str]:
    found = []
    if not values.data:
        found.append("there is nothing to learn from: name pictures with --data, or try --preset demo")
    for flag, path in (("--data", values.data), ("--val-data", values.val_data)):
        found += _missing(flag, path)
    if values.imbalance is not None:
        try:
            check_imbalance(values.imbalance)
        except ConfigError as error:
            found += error.problems
    return found


def _missing(flag: str, path: str | None) -> list[str]:
    if not path:
        return []
    urls = bridge.expand_urls(path)[0]
    local = [one for one in map(local_path, urls) if one is not None]
    missing = [one for one in local if not Path(one).exists()]
    if not missing:
        return []
    hint = "; a * is not expanded, write braces, as in 'shard-{000..099}.tar'" if "*" in path else ""
    return [f"{flag}: {len(missing):,} of {len(urls):,} do not exist, the first is {missing[0]}{hint}"]


def _model_problems(values: Namespace) -> list[str]:
    found = []
    try:
        widest = max(projector_widths(values.projector))
    except IsogclrError as error:
        found.append(f"--{error}")
    else:
        if widest > _WIDEST:
            found.append(f"--projector {values.projector} has a layer of {widest:,}, expected at most {_WIDEST:,}")
    if values.sync_bn and bridge.ranks_of_environment() > 1 and not bridge.is_accelerated(values):
        found.append("--sync-bn needs GPUs: torch synchronises no batch norm on CPUs; leave it out")
    return found


def _optimizer_problems(values: Namespace, given: Mapping[str, Any]) -> list[str]:
    found = [
        f"{_flag(name)} belongs to --opt {' or '.join(names)}, but --opt is {values.opt}: leave it out"
        for name, names in _ONLY_FOR.items()
        if name in given and values.opt not in names
    ]
    if values.nesterov and not values.momentum:
        found.append("--nesterov needs --momentum above 0")
    return found


def _loss_settings(name: str, preset: Preset, given: Mapping[str, Any]) -> LossSettings:
    options = {
        one.option: given[one.destination]
        for one in view_loss_flags()
        if one.loss == name and one.destination in given
    }
    decay = options.pop(GAMMA_DECAY, None)
    return LossSettings(name, {**unimodal_defaults(name), **preset.losses.get(name, {}), **options}, decay)


def _loss_problems(loss: LossSettings, values: Namespace, given: Mapping[str, Any]) -> list[str]:
    found = [
        f"{one.flag} belongs to --loss {one.loss}, but --loss is {loss.name}: leave it out"
        for one in view_loss_flags()
        if one.loss != loss.name and one.destination in given
    ]
    flags = {one.option: one.flag for one in view_loss_flags() if one.loss == loss.name}
    try:
        loss_configuration(loss, 1, view_loss_class)
    except ConfigError as error:
        found += [with_flag(problem, flags) for problem in error.problems]
    return found


def _settings(values: Namespace, loss: LossSettings) -> UnimodalSettings:
    stem = values.stem or ("cifar" if values.image_size <= SMALL_PICTURE_PIXELS else "imagenet")
    return UnimodalSettings(
        run=_run_settings(values),
        data=DataSettings(
            train_data=values.data,
            dataset_type=PICTURES,
            batch_size=values.batch_size,
            accumulation=values.accum_freq,
            workers=values.workers,
            seed=values.seed,
        ),
        optimizer=_optimizer_settings(values),
        loss=loss,
        model=ViewModelSettings(
            values.backbone, stem, values.projector, values.image_size, values.precision, values.sync_bn
        ),
        pictures=PictureSettings(values.label, values.imbalance, values.imbalance_seed),
        evaluation=NeighbourSettings(values.val_data, values.val_frequency, values.workers),
        device=values.device,
        divergence=divergence_settings(values),
    )


def _optimizer_settings(values: Namespace) -> OptimizerSettings:
    return OptimizerSettings(
        name=values.opt,
        lr=values.lr,
        beta1=values.beta1,
        beta2=values.beta2,
        eps=values.eps,
        weight_decay=values.wd,
        momentum=values.momentum,
        scheduler="cosine",
        warmup_steps=0,
        skip_scheduler=False,
        epochs_cooldown=None,
        cooldown_power=1.0,
        cooldown_end=0.0,
        grad_clip_norm=values.grad_clip_norm,
        warmup_epochs=values.warmup_epochs,
        nesterov=values.nesterov,
    )


def _run_settings(values: Namespace) -> RunSettings:
    same = (
        *("name", "epochs", "seed", "resume", "save_frequency", "save_every_n_steps", "save_most_recent"),
        *("delete_previous_checkpoint", "log_every_n_steps", "log_local", "debug"),
        *("wandb_notes", "copy_codebase", "index"),
    )
    return RunSettings(
        **{name: getattr(values, name) for name in same},
        logs=Path(values.logs) if stores(values) else None,
        tensorboard="tensorboard" in reports(values),
        wandb="wandb" in reports(values),
        wandb_project=values.wandb_project_name,
        state_dir=expanded(values.isogclr_state_dir),
    )


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
