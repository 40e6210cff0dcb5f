"""From flags to the settings of a run."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from isogclr.config import DEFAULT_PRESET, PRESETS
from training import open_clip_bridge as bridge
from training.params.loss_flags import GAMMA_DECAY, LOSSES_WITH_PRESETS, PRESET, loss_flags
from training.settings import (
    DataSettings,
    DivergenceSettings,
    EvaluationSettings,
    LossSettings,
    ModelSettings,
    OptimizerSettings,
    RunSettings,
    Settings,
)

# Arguments of open_clip's model factory that have a flag of the same name.
_FACTORY_OPTIONS = (
    "force_quick_gelu",
    "force_custom_text",
    "force_patch_dropout",
    "force_context_length",
    "image_mean",
    "image_std",
    "image_interpolation",
    "image_resize_mode",
    "aug_cfg",
    "pretrained_image",
    "cache_dir",
)
REPORTS = ("wandb", "tensorboard")


def trains(theirs: Namespace) -> bool:
    return bool(theirs.train_data) or theirs.dataset_type == "synthetic"


def stores(theirs: Namespace) -> bool:
    return bool(theirs.logs) and theirs.logs.lower() != "none"


def reports(theirs: Namespace) -> list[str]:
    """As open_clip reads `--report-to`: the words that are anywhere in it."""
    return [name for name in REPORTS if name in theirs.report_to or "all" in theirs.report_to]


def settings_from(ours: Namespace, theirs: Namespace, notices: tuple[str, ...]) -> Settings:
    return Settings(
        run=_run_settings(ours, theirs),
        data=data_settings(theirs) if trains(theirs) else None,
        model=_model_settings(ours, theirs),
        optimizer=_optimizer_settings(theirs),
        loss=loss_settings(ours, theirs),
        evaluation=EvaluationSettings(
            ours.eval_suite,
            tuple(ours.eval_dataset),
            ours.eval_data_root,
            ours.eval_every_n_epochs,
            theirs.batch_size,
            theirs.workers,
        ),
        divergence=divergence_settings(ours),
        notices=notices,
    )


def _run_settings(ours: Namespace, theirs: Namespace) -> RunSettings:
    return RunSettings(
        name=theirs.name,
        logs=Path(theirs.logs) if stores(theirs) else None,
        epochs=theirs.epochs,
        seed=theirs.seed,
        resume=theirs.resume,
        save_frequency=theirs.save_frequency,
        save_every_n_steps=ours.save_every_n_steps,
        save_most_recent=theirs.save_most_recent,
        delete_previous_checkpoint=theirs.delete_previous_checkpoint,
        log_every_n_steps=theirs.log_every_n_steps,
        log_local=theirs.log_local,
        debug=theirs.debug,
        tensorboard="tensorboard" in reports(theirs),
        wandb="wandb" in reports(theirs),
        wandb_project=theirs.wandb_project_name,
        wandb_notes=theirs.wandb_notes,
        copy_codebase=theirs.copy_codebase,
        index=ours.index,
        state_dir=expanded(ours.isogclr_state_dir),
    )


def divergence_settings(ours: Namespace) -> DivergenceSettings:
    usual = DivergenceSettings()
    factor, most = ours.rollback_lr_factor, ours.max_rollbacks
    return DivergenceSettings(
        max_bad_steps=ours.max_bad_steps,
        rolls_back=ours.on_divergence == "rollback",
        lr_factor=usual.lr_factor if factor is None else factor,
        max_rollbacks=usual.max_rollbacks if most is None else most,
    )


def expanded(path: Path | None) -> Path | None:
    """With variables such as $SLURM_TMPDIR replaced; each node has its own."""
    return None if path is None else Path(os.path.expandvars(path)).expanduser()


def data_settings(theirs: Namespace) -> DataSettings:
    return DataSettings(
        train_data=theirs.train_data,
        dataset_type=theirs.dataset_type,
        resampled=theirs.dataset_resampled,
        upsampling_factors=theirs.train_data_upsampling_factors,
        num_samples=theirs.train_num_samples,
        csv_separator=theirs.csv_separator,
        csv_image_key=theirs.csv_img_key,
        csv_caption_key=theirs.csv_caption_key,
        batch_size=theirs.batch_size,
        accumulation=theirs.accum_freq,
        workers=theirs.workers,
        seed=theirs.seed,
    )


def _model_settings(ours: Namespace, theirs: Namespace) -> ModelSettings:
    options: dict[str, Any] = {name: getattr(theirs, name) for name in _FACTORY_OPTIONS}
    size = theirs.force_image_size
    options["force_image_size"] = size[0] if size is not None and len(size) == 1 else size
    options["jit"] = theirs.torchscript
    options["pretrained_text"] = not ours.no_pretrained_text
    if theirs.siglip:
        options |= bridge.SIGLIP_MODEL_OPTIONS
    same = (
        *("lock_image", "lock_image_unlocked_groups", "lock_image_freeze_bn_stats"),
        *("lock_text", "lock_text_unlocked_layers", "lock_text_freeze_layer_norm"),
        *("grad_checkpointing", "use_bn_sync", "ddp_static_graph", "torchcompile", "use_bnb_linear"),
    )
    return ModelSettings(
        name=theirs.model,
        pretrained=theirs.pretrained,
        precision=theirs.precision,
        text_model=ours.text_model.absolute() if ours.text_model is not None else None,
        factory_options=options,
        **{name: getattr(theirs, name) for name in same},
    )


def _optimizer_settings(theirs: Namespace) -> OptimizerSettings:
    return OptimizerSettings(
        name=theirs.opt.lower(),
        lr=theirs.lr,
        beta1=theirs.beta1,
        beta2=theirs.beta2,
        eps=theirs.eps,
        weight_decay=theirs.wd,
        momentum=theirs.momentum,
        scheduler=theirs.lr_scheduler,
        warmup_steps=theirs.warmup,
        skip_scheduler=theirs.skip_scheduler,
        epochs_cooldown=theirs.epochs_cooldown,
        cooldown_power=theirs.lr_cooldown_power,
        cooldown_end=theirs.lr_cooldown_end,
        grad_clip_norm=theirs.grad_clip_norm,
    )


def loss_settings(ours: Namespace, theirs: Namespace) -> LossSettings:
    if ours.loss == "clip":
        return LossSettings(
            "clip",
            {"local_loss": theirs.local_loss, "gather_with_grad": theirs.gather_with_grad, "cache_labels": True},
        )
    if ours.loss == "siglip":
        return LossSettings("siglip", {"dist_impl": theirs.loss_dist_impl})
    given = {
        one.option: getattr(ours, one.destination)
        for one in loss_flags()
        if one.loss == ours.loss and getattr(ours, one.destination) is not None
    }
    decay = given.pop(GAMMA_DECAY, None)
    if ours.loss not in LOSSES_WITH_PRESETS:
        return LossSettings(ours.loss, given, decay)
    preset = given.pop(PRESET, DEFAULT_PRESET)
    return LossSettings(ours.loss, {**PRESETS[preset], **given}, decay, preset)
