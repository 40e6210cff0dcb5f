"""The command line: open_clip's flags and ours.

Our parser takes its own flags first and knows no abbreviations; the rest goes to open_clip's. Otherwise open_clip's
parser, which completes abbreviations, would read `--loss isogclr` as `--loss-dist-impl isogclr`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isogclr.errors import ConfigError
from isogclr.losses import LOSSES
from training import open_clip_bridge as bridge
from training.data_config import DataConfig
from training.loss_flags import GAMMA_DECAY, LOSS_CONFIGS, loss_flags
from training.loss_setup import loss_configuration
from training.settings import (
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
_REPORTS = ("wandb", "tensorboard")
# Flags of the fields of `DataConfig` that have another name there.
_DATA_FLAGS = {
    "batch_size": "--batch-size",
    "accumulation": "--accum-freq",
    "workers": "--workers",
    "num_samples": "--train-num-samples",
}
_COCA_DEFAULTS = {"coca_caption_loss_weight": 2.0, "coca_contrastive_loss_weight": 1.0}


def parse(argv: Sequence[str]) -> tuple[Settings, Namespace]:
    """The settings of a run, and open_clip's own arguments for the bridge. Every problem is reported together."""
    parser = _parser()
    ours, rest = parser.parse_known_args(argv)
    if ours.help:
        sys.stdout.write(_help(parser))
        raise SystemExit(0)
    _refuse_abbreviations(parser, rest)
    theirs = bridge.parse_args(rest)
    problems = _refusals(ours, theirs)
    if ours.loss is None:
        ours.loss = "siglip" if theirs.siglip else "clip"
    theirs.siglip = ours.loss == "siglip"
    problems += _data_problems(theirs) + _loss_problems(ours, theirs)
    if problems:
        raise ConfigError(problems)
    notices = _notices(ours, theirs, rest)
    return _settings(ours, theirs, notices), theirs


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.main",
        description="Train CLIP as open_clip_train.main does, with a loss of your choice and state for samples.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    run = parser.add_argument_group("loss, sample identity and state")
    run.add_argument(
        "--loss", choices=list(LOSSES), help="the loss (default: clip; siglip is open_clip's --siglip)"
    )
    run.add_argument(
        "--index", type=Path, metavar="PATH", help="shard index; built on first use (default: in the run)"
    )
    run.add_argument(
        "--isogclr-state-dir",
        type=Path,
        metavar="DIR",
        help="folder of the live state file, on a local disk or in shared memory (default: in the run)",
    )
    run.add_argument(
        "--save-every-n-steps",
        type=int,
        metavar="N",
        help="commit a generation every N steps (default: by epoch only)",
    )
    run.add_argument(
        "--text-model",
        type=Path,
        metavar="DIR",
        help="folder of the model's Hugging Face text tower and tokenizer (default: downloaded, or in the cache)",
    )
    run.add_argument(
        "--no-pretrained-text",
        action="store_true",
        help="start a Hugging Face text tower from random weights (default: its pretrained ones, as open_clip)",
    )
    measuring = parser.add_argument_group("evaluation after an epoch, beside open_clip's own")
    measuring.add_argument(
        "--eval-suite", metavar="NAME", help="suite of `isogclr eval` to measure (default: none)"
    )
    measuring.add_argument(
        "--eval-data-root", type=Path, metavar="DIR", help="its data, as for `isogclr eval` (default: none)"
    )
    measuring.add_argument(
        "--eval-dataset",
        nargs="+",
        default=[],
        metavar="NAME",
        help="these data sets instead of the suite's own (default: all of the suite)",
    )
    measuring.add_argument(
        "--eval-every-n-epochs",
        type=int,
        default=1,
        metavar="N",
        help="how often (default: 1; always after the last)",
    )
    groups = {loss: parser.add_argument_group(f"--loss {loss}") for loss in LOSS_CONFIGS}
    for one in loss_flags():
        if one.kind is bool:
            groups[one.loss].add_argument(one.flag, action="store_true", default=None, help=one.help)
        else:
            metavar = None if one.choices else {int: "N", float: "X"}[one.kind]
            groups[one.loss].add_argument(
                one.flag, type=one.kind, choices=one.choices, metavar=metavar, help=one.help
            )
    return parser


def _help(parser: argparse.ArgumentParser) -> str:
    return f"{parser.format_help()}\nand every flag of open_clip_train.main:\n\n{bridge.help_text()}"


def _refuse_abbreviations(parser: argparse.ArgumentParser, rest: Sequence[str]) -> None:
    """`--los` would be completed to `--loss-dist-impl` by open_clip, and mean `--loss` to its writer."""
    own = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    for token in rest:
        word = token.split("=", 1)[0]
        meant = [flag for flag in own if word.startswith("--") and len(word) > 2 and flag.startswith(word)]
        if meant:
            raise ConfigError(
                [f"{word}: found an abbreviation, expected the whole flag: write {' or '.join(meant)}"]
            )


def _refusals(ours: Namespace, theirs: Namespace) -> list[str]:
    """Flags that can not be honoured, by name and reason."""
    return [
        *_unsupported(theirs),
        *_conflicting_losses(ours, theirs),
        *_missing_parts(ours, theirs),
        *_bad_numbers(ours, theirs),
        *_bad_optimizer(theirs),
    ]


def _unsupported(theirs: Namespace) -> list[str]:
    found = []
    if theirs.horovod:
        found.append(
            "--horovod is not supported: the loss exchanges through torch.distributed; use torchrun or srun"
        )
    if theirs.distill_model is not None or theirs.distill_pretrained is not None:
        found.append("--distill-model and --distill-pretrained are not supported: there is no loss for a teacher")
    if theirs.trace:
        found.append(
            "--trace is not supported: torch can not trace a model that returns a dict, and open_clip's evaluation "
            "needs one"
        )
    if "coca" in theirs.model.lower():
        found.append(f"--model {theirs.model} is not supported: CoCa's captioning loss has no place beside --loss")
    for name, default in _COCA_DEFAULTS.items():
        if getattr(theirs, name) != default:
            found.append(f"{_flag(name)} is not supported: it belongs to CoCa, which is not")
    return found


def _conflicting_losses(ours: Namespace, theirs: Namespace) -> list[str]:
    found = []
    if theirs.siglip and ours.loss not in (None, "siglip"):
        found.append(f"--siglip and --loss {ours.loss} name two losses: leave one out")
    is_siglip = ours.loss == "siglip" or theirs.siglip
    if theirs.loss_dist_impl is not None and not is_siglip:
        found.append("--loss-dist-impl belongs to --loss siglip: leave it out")
    loss = ours.loss or ("siglip" if theirs.siglip else "clip")
    found += [
        f"{one.flag} belongs to --loss {one.loss}, but --loss is {loss}: leave it out"
        for one in loss_flags()
        if one.loss != loss and getattr(ours, one.destination) is not None
    ]
    return found


def _missing_parts(ours: Namespace, theirs: Namespace) -> list[str]:
    found = []
    if theirs.remote_sync is not None and theirs.resume == "latest":
        found.append(
            "--resume latest looks for generations on disk, not at --remote-sync: fetch the run first and leave "
            "--remote-sync out, or name what to resume"
        )
    packages = {f"--report-to {name}": name for name in _reports(theirs)}
    if theirs.use_bnb_linear is not None:
        packages["--use-bnb-linear"] = "bitsandbytes"
    if theirs.imagenet_v2 is not None:
        packages["--imagenet-v2"] = "imagenetv2_pytorch"
    found += [
        f"{flag} needs the package {package}, which is not installed: install it or leave the flag out"
        for flag, package in packages.items()
        if importlib.util.find_spec(package) is None
    ]
    if theirs.report_to and not _reports(theirs):
        found.append(f"--report-to is {theirs.report_to}, but must be of {', '.join(_REPORTS)} or all")
    if ours.text_model is not None and not ours.text_model.is_dir():
        found.append(
            f"--text-model {ours.text_model} is no folder: give the one with config.json and the tokenizer"
        )
    if not _trains(theirs) and not any((theirs.val_data, theirs.imagenet_val, theirs.imagenet_v2)):
        found.append("nothing to do: give --train-data, --val-data, --imagenet-val or --imagenet-v2")
    return found


def _reports(theirs: Namespace) -> list[str]:
    """As open_clip reads `--report-to`: the words that are anywhere in it."""
    return [name for name in _REPORTS if name in theirs.report_to or "all" in theirs.report_to]


def _data_problems(theirs: Namespace) -> list[str]:
    if not _trains(theirs):
        return []
    try:
        _data_config(theirs)
    except ConfigError as error:
        return [_with_flag(problem, _DATA_FLAGS) for problem in error.problems]
    return []


def _loss_problems(ours: Namespace, theirs: Namespace) -> list[str]:
    flags = {one.option: one.flag for one in loss_flags() if one.loss == ours.loss}
    try:
        loss_configuration(_loss_settings(ours, theirs), decay_steps=1)
    except ConfigError as error:
        return [_with_flag(problem, flags) for problem in error.problems]
    return []


def _with_flag(problem: str, flags: Mapping[str, str]) -> str:
    """A problem of a configuration begins with the name of its field; who reads it has given a flag."""
    name, space, rest = problem.partition(" ")
    return f"{flags.get(name, name)}{space}{rest}"


def _bad_numbers(ours: Namespace, theirs: Namespace) -> list[str]:
    found = []
    of_evaluation = () if _trains(theirs) else ("batch_size",)  # of training: see `DataConfig`
    for name in (*of_evaluation, "epochs", "log_every_n_steps"):
        if getattr(theirs, name) < 1:
            found.append(f"{_flag(name)} is {getattr(theirs, name)}, but must be 1 or more")
    for name in ("save_every_n_steps", "eval_every_n_epochs"):
        value = getattr(ours, name)
        if value is not None and value < 1:
            found.append(f"{_flag(name)} is {value}, but must be 1 or more")
    if (ours.eval_suite is None) != (ours.eval_data_root is None):
        found.append("--eval-suite and --eval-data-root go together: give both, or none")
    if ours.eval_dataset and ours.eval_suite is None:
        found.append("--eval-dataset chooses from a suite: name it with --eval-suite")
    return found


def _bad_optimizer(theirs: Namespace) -> list[str]:
    found = []
    if theirs.lr_scheduler not in bridge.SCHEDULERS:
        found.append(f"--lr-scheduler is {theirs.lr_scheduler}, but must be one of {', '.join(bridge.SCHEDULERS)}")
    if theirs.lr_scheduler == "const-cooldown" and theirs.epochs_cooldown is None:
        found.append("--lr-scheduler const-cooldown needs --epochs-cooldown")
    is_timm = theirs.opt.lower().startswith("timm/")
    if theirs.opt.lower() != "adamw" and not is_timm:
        found.append(f"--opt is {theirs.opt}, but must be adamw or timm/NAME")
    if is_timm and (theirs.beta1 is None) != (theirs.beta2 is None):
        found.append("--beta1 and --beta2: a timm optimizer takes both or none")
    return found


def _notices(ours: Namespace, theirs: Namespace, rest: Sequence[str]) -> tuple[str, ...]:
    """Flags that are honoured in another way than their reader may think."""
    found = []
    if ours.loss in LOSS_CONFIGS:
        found += [
            f"{_flag(name)} changes nothing with --loss {ours.loss}: its gradient on many ranks is always exact"
            for name in ("local_loss", "gather_with_grad")
            if getattr(theirs, name)
        ]
    if not _was_given("--precision", "--pretrained", rest) and not bridge.is_accelerated(theirs):
        theirs.precision = "fp32"
        found.append("--precision is fp32: there is no accelerator, and half precision on a CPU is slow or missing")
    return tuple(found)


def _was_given(flag: str, other: str, rest: Sequence[str]) -> bool:
    """Whether a flag was given to open_clip's parser, which also takes its unambiguous beginnings."""
    words = (token.split("=", 1)[0] for token in rest)
    return any(flag.startswith(word) and not other.startswith(word) for word in words if word.startswith("--"))


def _trains(theirs: Namespace) -> bool:
    return bool(theirs.train_data) or theirs.dataset_type == "synthetic"


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _settings(ours: Namespace, theirs: Namespace, notices: tuple[str, ...]) -> Settings:
    return Settings(
        run=_run_settings(ours, theirs),
        data=_data_config(theirs) if _trains(theirs) else None,
        model=_model_settings(ours, theirs),
        optimizer=_optimizer_settings(theirs),
        loss=_loss_settings(ours, theirs),
        evaluation=EvaluationSettings(
            ours.eval_suite,
            tuple(ours.eval_dataset),
            ours.eval_data_root,
            ours.eval_every_n_epochs,
            theirs.batch_size,
            theirs.workers,
        ),
        notices=notices,
    )


def _run_settings(ours: Namespace, theirs: Namespace) -> RunSettings:
    stores = bool(theirs.logs) and theirs.logs.lower() != "none"
    return RunSettings(
        name=theirs.name,
        logs=Path(theirs.logs) if stores else None,
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
        tensorboard="tensorboard" in _reports(theirs),
        wandb="wandb" in _reports(theirs),
        wandb_project=theirs.wandb_project_name,
        wandb_notes=theirs.wandb_notes,
        copy_codebase=theirs.copy_codebase,
        index=ours.index,
        state_dir=_expanded(ours.isogclr_state_dir),
    )


def _expanded(path: Path | None) -> Path | None:
    """With variables such as $SLURM_TMPDIR replaced; each node has its own."""
    return None if path is None else Path(os.path.expandvars(path)).expanduser()


def _data_config(theirs: Namespace) -> DataConfig:
    return DataConfig(
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


def _loss_settings(ours: Namespace, theirs: Namespace) -> LossSettings:
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
    return LossSettings(ours.loss, given, decay)
