"""The flags of `training.unimodal`: names as open_clip has them, where it has them.

Every flag that is not given is None here: its value is that of the preset, or else the default.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, NoReturn

from isogclr.errors import ConfigError
from isogclr.losses import VIEW_LOSSES
from isogclr.models.backbones import BACKBONES, STEMS
from training.params.flags import add_loss_flags
from training.params.loss_flags import view_loss_flags
from training.params.unimodal_presets import DEFAULTS, UNIMODAL_RUN_PRESETS
from training.settings import DivergenceSettings

OPTIMIZERS = ("lars", "sgd", "adamw")
PRECISIONS = ("fp32", "amp", "amp_bf16")


class _Parser(argparse.ArgumentParser):
    """What is wrong comes as an error with one line, not with the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError([message])


class _Group:
    """Adds flags that are None if not given, and say what they are then."""

    def __init__(self, parser: argparse.ArgumentParser, title: str) -> None:
        self._group = parser.add_argument_group(title)

    def add(self, flag: str, meaning: str, otherwise: str | None = None, **options: Any) -> None:
        default = DEFAULTS[flag[2:].replace("-", "_")]
        shown = otherwise or ("off" if default is False else "none" if default in (None, "") else f"{default}")
        self._group.add_argument(flag, default=None, help=f"{meaning} (default: {shown})", **options)


def create_unimodal_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m training.unimodal",
        description="Learn from pictures alone: two views of each, a loss of your choice, state for every picture.",
        allow_abbrev=False,
    )
    start = parser.add_argument_group("where to begin")
    start.add_argument(
        "--preset",
        choices=list(UNIMODAL_RUN_PRESETS),
        help="values of the flags below that are not given: the paper's settings for a data set, or demo: the "
        "pictures inside the package (default: the paper's settings for CIFAR)",
    )
    _add_data(_Group(parser, "data"))
    _add_model(_Group(parser, "model"))
    _add_training(_Group(parser, "training"))
    _add_run(_Group(parser, "run"))
    _add_divergence(_Group(parser, "a loss or gradients that are not finite"))
    add_loss_flags(parser, view_loss_flags())
    return parser


def _add_data(group: _Group) -> None:
    group.add(
        "--data",
        "pictures to learn from: shards ('{000..099}.tar', `::` mixes), a folder with a folder for each class, or "
        "the folder of CIFAR-10 or CIFAR-100 as unpacked",
        metavar="PATH",
    )
    group.add(
        "--val-data", "labelled pictures for the kNN accuracy; the test part of CIFAR's folder", metavar="PATH"
    )
    group.add(
        "--label",
        "where shards have their labels: in `cls` files, or a field of their `json` files",
        metavar="FIELD",
    )
    group.add(
        "--imbalance",
        "train on a long-tailed subset: the first class keeps X times as many pictures as the last; paper: 100",
        "all pictures",
        type=float,
        metavar="X",
    )
    group.add("--imbalance-seed", "which pictures of a class are kept", type=int, metavar="N")
    group.add("--workers", "data workers of a rank", type=int, metavar="N")


def _add_model(group: _Group) -> None:
    group.add("--backbone", "tiny is for CPUs", choices=BACKBONES)
    group.add(
        "--stem",
        "first layers of a backbone: cifar, without loss of size, or torchvision's for imagenet",
        "cifar up to 64 pixels",
        choices=STEMS,
    )
    group.add("--projector", "widths of its layers", metavar="W-W-…")
    group.add("--image-size", "pixels a side of a view", type=int, metavar="N")
    group.add("--sync-bn", "batch norm over all ranks", action="store_true")
    group.add("--precision", "of the model; losses compute in fp32", "amp, or fp32 on a CPU", choices=PRECISIONS)


def _add_training(group: _Group) -> None:
    group.add("--loss", "what to minimise", choices=list(VIEW_LOSSES))
    group.add("--batch-size", "pictures of a rank in a batch", type=int, metavar="N")
    group.add(
        "--accum-freq",
        "batches of a step; the loss is that of all of them together, batch norm sees one at a time",
        type=int,
        metavar="N",
    )
    group.add("--epochs", "passes over the data", type=int, metavar="N")
    group.add("--opt", "optimizer", choices=OPTIMIZERS)
    group.add("--lr", "learning rate, at the end of the warm-up; then a cosine to 0", type=float, metavar="X")
    group.add("--wd", "weight decay; none of gains and biases", type=float, metavar="X")
    group.add("--momentum", "of LARS and SGD", type=float, metavar="X")
    group.add("--nesterov", "Nesterov's momentum, for LARS and SGD", action="store_true")
    for name in ("beta1", "beta2", "eps"):
        group.add(f"--{name}", "of AdamW", type=float, metavar="X")
    group.add("--warmup-epochs", "epochs in which the learning rate grows", type=float, metavar="X")
    group.add("--grad-clip-norm", "largest norm of the gradient", type=float, metavar="X")
    group.add("--seed", "of weights, order and views", type=int, metavar="N")
    group.add("--device", "cuda, cuda:1, cpu, …; a CPU if it is not there")


def _add_divergence(group: _Group) -> None:
    usual = DivergenceSettings()
    group.add("--max-bad-steps", "end the run after so many of these steps in a row", type=int, metavar="N")
    group.add(
        "--on-divergence",
        "then stop, or go back to the last commit with a lower learning rate",
        choices=("stop", "rollback"),
    )
    group.add(
        "--rollback-lr-factor",
        "the learning rate times this, with every rollback",
        str(usual.lr_factor),
        type=float,
        metavar="X",
    )
    group.add(
        "--max-rollbacks", "go back so often in a run, then stop", str(usual.max_rollbacks), type=int, metavar="N"
    )


def _add_run(group: _Group) -> None:
    group.add("--logs", "folder of runs; `none` stores nothing", metavar="DIR")
    group.add("--name", "of the run", "from date and settings")
    group.add("--resume", "`latest`, a run, or a checkpoint to go on from", metavar="PATH")
    group.add("--save-frequency", "keep the checkpoint of every n-th epoch", type=int, metavar="N")
    group.add("--save-every-n-steps", "commit a generation every N steps", "by epoch only", type=int, metavar="N")
    group.add("--save-most-recent", "write epoch_latest.pt", action="store_true")
    group.add("--delete-previous-checkpoint", "keep the last epoch_N.pt only", action="store_true")
    group.add("--val-frequency", "kNN accuracy every n-th epoch; always after the last", type=int, metavar="N")
    group.add("--log-every-n-steps", "a line of the log for every n-th step", type=int, metavar="N")
    group.add("--log-local", "a log of every node", action="store_true")
    group.add("--report-to", "tensorboard, wandb or both, as in tensorboard,wandb", metavar="NAMES")
    group.add("--wandb-project-name", "for W&B", metavar="NAME")
    group.add("--wandb-notes", "for W&B", metavar="TEXT")
    group.add("--debug", "log more", action="store_true")
    group.add("--copy-codebase", "copy these programs into the run", action="store_true")
    group.add("--index", "shard index; built on first use", "in the run", type=Path, metavar="PATH")
    group.add(
        "--isogclr-state-dir",
        "folder of the live state file, local or in shared memory",
        "in the run, or local scratch",
        type=Path,
        metavar="DIR",
    )
