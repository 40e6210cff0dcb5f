"""Flags that can not be honoured, or that mean something else than their reader may think."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from collections.abc import Mapping, Sequence

from isogclr.errors import ConfigError
from training import open_clip_bridge as bridge
from training.loss import loss_configuration
from training.params.loss_flags import LOSS_CONFIGS, loss_flags
from training.params.values import REPORTS, data_settings, loss_settings, reports, stores, trains

# Flags of the fields of `DataSettings` that have another name there.
_DATA_FLAGS = {
    "batch_size": "--batch-size",
    "accumulation": "--accum-freq",
    "workers": "--workers",
    "num_samples": "--train-num-samples",
}
_COCA_DEFAULTS = {"coca_caption_loss_weight": 2.0, "coca_contrastive_loss_weight": 1.0}


def refusals(ours: Namespace, theirs: Namespace) -> list[str]:
    """Flags that can not be honoured, by name and reason."""
    return [
        *_unsupported(theirs),
        *_conflicting_losses(ours, theirs),
        *_missing_parts(ours, theirs),
        *_bad_numbers(ours, theirs),
        *divergence_problems(ours, theirs),
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
    if theirs.ddp_static_graph and theirs.accum_freq > 1:
        found.append(
            "--ddp-static-graph and --accum-freq above 1 do not go together: a static graph must reduce gradients "
            "in every backward pass, accumulation only in the last; leave one out"
        )
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
    packages = {}
    if theirs.use_bnb_linear is not None:
        packages["--use-bnb-linear"] = "bitsandbytes"
    if theirs.imagenet_v2 is not None:
        packages["--imagenet-v2"] = "imagenetv2_pytorch"
    found += _not_installed(packages) + missing_reports(theirs)
    if ours.text_model is not None and not ours.text_model.is_dir():
        found.append(
            f"--text-model {ours.text_model} is no folder: give the one with config.json and the tokenizer"
        )
    if not trains(theirs) and not any((theirs.val_data, theirs.imagenet_val, theirs.imagenet_v2)):
        found.append("nothing to do: give --train-data, --val-data, --imagenet-val or --imagenet-v2")
    return found


def missing_reports(theirs: Namespace) -> list[str]:
    """Of `--report-to`, which both programs have."""
    found = _not_installed({f"--report-to {name}": name for name in reports(theirs)})
    if theirs.report_to and not reports(theirs):
        found.append(f"--report-to is {theirs.report_to}, but must be of {', '.join(REPORTS)} or all")
    return found


def _not_installed(packages: Mapping[str, str]) -> list[str]:
    return [
        f"{flag} needs the package {package}, which is not installed: install it or leave the flag out"
        for flag, package in packages.items()
        if not _is_installed(package)
    ]


def _is_installed(package: str) -> bool:
    """A folder of this name, such as the one that wandb leaves where a run was started, is no package."""
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None


def data_problems(theirs: Namespace) -> list[str]:
    if not trains(theirs):
        return []
    try:
        data_settings(theirs)
    except ConfigError as error:
        return [with_flag(problem, _DATA_FLAGS) for problem in error.problems]
    return []


def loss_problems(ours: Namespace, theirs: Namespace) -> list[str]:
    flags = {one.option: one.flag for one in loss_flags() if one.loss == ours.loss}
    try:
        loss_configuration(loss_settings(ours, theirs), decay_steps=1)
    except ConfigError as error:
        return [with_flag(problem, flags) for problem in error.problems]
    return []


def with_flag(problem: str, flags: Mapping[str, str]) -> str:
    """A problem of a configuration begins with the name of its field; who reads it has given a flag."""
    name, space, rest = problem.partition(" ")
    return f"{flags.get(name, name)}{space}{rest}"


def _bad_numbers(ours: Namespace, theirs: Namespace) -> list[str]:
    found = []
    of_evaluation = () if trains(theirs) else ("batch_size",)  # of training: see `DataSettings`
    for name in (*of_evaluation, "epochs", "log_every_n_steps"):
        if getattr(theirs, name) < 1:
            found.append(f"{_flag(name)} is {getattr(theirs, name)}, but must be 1 or more")
    for name in ("save_every_n_steps", "eval_every_n_epochs", "max_bad_steps", "max_rollbacks"):
        value = getattr(ours, name)
        if value is not None and value < 1:
            found.append(f"{_flag(name)} is {value}, but must be 1 or more")
    if (ours.eval_suite is None) != (ours.eval_data_root is None):
        found.append("--eval-suite and --eval-data-root go together: give both, or none")
    if ours.eval_dataset and ours.eval_suite is None:
        found.append("--eval-dataset chooses from a suite: name it with --eval-suite")
    return found


def divergence_problems(ours: Namespace, theirs: Namespace) -> list[str]:
    found = []
    factor = ours.rollback_lr_factor
    if factor is not None and not 0 < factor < 1:
        found.append(f"--rollback-lr-factor is {factor}, but must be between 0 and 1")
    if ours.on_divergence == "rollback":
        if not stores(theirs):
            found.append("--on-divergence rollback needs commits to go back to, and --logs none makes none")
        return found
    found += [
        f"{_flag(name)} belongs to --on-divergence rollback: leave it out, or add that"
        for name in ("rollback_lr_factor", "max_rollbacks")
        if getattr(ours, name) is not None
    ]
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


def notices(ours: Namespace, theirs: Namespace, rest: Sequence[str]) -> tuple[str, ...]:
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


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
