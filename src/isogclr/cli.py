"""The command `isogclr`. The only module of the library that knows argparse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

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
    _add_state(commands)
    _add_demo(commands)
    return parser


def _add_state(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser("state", help="the state of every sample: info, export, verify")
    actions = group.add_subparsers(title="actions", required=True, metavar="ACTION")
    source = "a snapshot, a generation, or a folder of generations (the latest counts)"

    info = actions.add_parser("info", help="what a store holds, and how much was visited")
    info.add_argument("path", type=Path, help=source)
    info.set_defaults(run=_run_state_info)

    export = actions.add_parser("export", help="all visited samples as a table")
    export.add_argument("path", type=Path, help=source)
    export.add_argument("table", type=Path, help="file to write: .csv, or .parquet with pyarrow")
    export.add_argument("--index", metavar="DIR", help="shard index of the run, for the columns shard and key")
    export.set_defaults(run=_run_state_export)

    verify = actions.add_parser("verify", help="read every byte and compare it with its checksum")
    verify.add_argument("path", type=Path, help=source)
    verify.set_defaults(run=_run_state_verify)


def _run_state_info(options: argparse.Namespace) -> None:
    from isogclr.state.inspect import describe  # noqa: PLC0415 (numpy is not needed by other commands)

    for name, value in describe(options.path):
        print(f"{name:<20} {value}")


def _run_state_export(options: argparse.Namespace) -> None:
    from isogclr.state.export import export_state  # noqa: PLC0415
    from isogclr.state.generations import find_snapshot  # noqa: PLC0415

    index = None
    if options.index is not None:
        index = import_module("isogclr.shard_index").ShardIndex.load(options.index)
    count = export_state(find_snapshot(options.path), options.table, index)
    print(f"wrote {count:,} rows to {options.table}")


def _run_state_verify(options: argparse.Namespace) -> None:
    from isogclr.state.inspect import verify  # noqa: PLC0415

    print(verify(options.path))


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("demo", help="learn temperatures on a small long-tailed data set, and show them")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=_run_demo)


def _run_demo(options: argparse.Namespace) -> None:
    from isogclr.demo import run_demo  # noqa: PLC0415 (torch is slow to import; other commands do not need it)

    run_demo(epochs=options.epochs, seed=options.seed)
