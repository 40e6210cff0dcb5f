"""Our flags, beside open_clip's."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from isogclr.errors import ConfigError
from isogclr.losses import LOSSES
from training import open_clip_bridge as bridge
from training.params.loss_flags import LossFlag, loss_flags
from training.settings import DivergenceSettings


def create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.main",
        description="Train CLIP as open_clip_train.main does, with a loss of your choice and state for samples.",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="store_true", help="show this help and exit")
    _add_run(parser.add_argument_group("loss, sample identity and state"))
    _add_divergence(parser.add_argument_group("a loss or gradients that are not finite"))
    _add_evaluation(parser.add_argument_group("evaluation after an epoch, beside open_clip's own"))
    add_loss_flags(parser, loss_flags())
    return parser


def add_loss_flags(parser: argparse.ArgumentParser, flags: Iterable[LossFlag]) -> None:
    """A group for each loss; a flag that is not given is None."""
    for loss, of_loss in groupby(flags, lambda one: one.loss):
        group = parser.add_argument_group(f"--loss {loss}")
        for one in of_loss:
            if one.kind is bool:
                group.add_argument(one.flag, action=argparse.BooleanOptionalAction, default=None, help=one.help)
            else:
                metavar = None if one.choices else {int: "N", float: "X"}[one.kind]
                group.add_argument(one.flag, type=one.kind, choices=one.choices, metavar=metavar, help=one.help)


def _add_run(run: argparse._ArgumentGroup) -> None:
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
        help="folder of the live state file, local or in shared memory (default: in the run, or local scratch)",
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


def _add_divergence(divergence: argparse._ArgumentGroup) -> None:
    usual = DivergenceSettings()
    divergence.add_argument(
        "--max-bad-steps",
        type=int,
        default=usual.max_bad_steps,
        metavar="N",
        help=f"end the run after so many of these steps in a row (default: {usual.max_bad_steps})",
    )
    divergence.add_argument(
        "--on-divergence",
        choices=("stop", "rollback"),
        default="stop",
        help="then stop, or go back to the last commit with a lower learning rate (default: stop)",
    )
    divergence.add_argument(
        "--rollback-lr-factor",
        type=float,
        metavar="X",
        help=f"the learning rate times this, with every rollback (default: {usual.lr_factor})",
    )
    divergence.add_argument(
        "--max-rollbacks",
        type=int,
        metavar="N",
        help=f"go back so often in a run, then stop (default: {usual.max_rollbacks})",
    )


def _add_evaluation(measuring: argparse._ArgumentGroup) -> None:
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


def help_text(parser: argparse.ArgumentParser) -> str:
    return f"{parser.format_help()}\nand every flag of open_clip_train.main:\n\n{bridge.help_text()}"


def refuse_abbreviations(parser: argparse.ArgumentParser, rest: Sequence[str]) -> None:
    """`--los` would be completed to `--loss-dist-impl` by open_clip, and mean `--loss` to its writer."""
    own = [flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")]
    for token in rest:
        word = token.split("=", 1)[0]
        meant = [flag for flag in own if word.startswith("--") and len(word) > 2 and flag.startswith(word)]
        if meant:
            raise ConfigError(
                [f"{word}: found an abbreviation, expected the whole flag: write {' or '.join(meant)}"]
            )
