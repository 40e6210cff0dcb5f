"""The command `isogclr`. The only module of the library that knows argparse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from isogclr.errors import IsogclrError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code. An error of ours is one line on stderr, never a traceback."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except IsogclrError as error:
        print(f"isogclr: error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="isogclr", description="CLIP with a learned temperature for every sample."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("demo", help="learn temperatures on a small long-tailed data set, and show them")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=_run_demo)


def _run_demo(options: argparse.Namespace) -> None:
    from isogclr.demo import run_demo  # noqa: PLC0415 (torch is slow to import; other commands do not need it)

    run_demo(epochs=options.epochs, seed=options.seed)
