"""The command `isogclr`. With cli_evaluation.py the only module of the library that knows argparse."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from isogclr import __version__
from isogclr.cli_evaluation import add_eval, add_export, add_linear, positive
from isogclr.csv_table import CsvColumns
from isogclr.errors import ConfigError, InputError, IsogclrError

if TYPE_CHECKING:
    from isogclr.report.detail import Embed

_COMMANDS = ("Cc", "Cf", "Zl", "Zp")  # categories of letters: controls, directions of writing, ends of lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code: 2 if the command line is wrong, 1 for other errors.

    An error of ours is one line on stderr, never a traceback.
    """
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if rest:
        is_expanded = any(word.endswith((".tar", ".csv", ".tsv")) for word in rest)
        advice = (
            "; quote a pattern, so that the shell does not expand it: 'shard-{000..099}.tar'" if is_expanded else ""
        )
        parser.error(f"unrecognized arguments: {_printable(' '.join(rest))[:200]}{advice}")
    try:
        code = int(options.run(options) or 0)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (IsogclrError, OSError) as error:
        lines = "\n".join(map(_printable, _reason(error).splitlines()))
        print(f"isogclr: error: {lines}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        place = error.filename or "what this command writes"
        return f"{place}: the disk is full, or a quota is used up: make room, and run the command again"
    return str(error)


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """A refused write says where it was; that of an open file does not know."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(folder)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="isogclr", description="CLIP with a learned temperature for every sample."
    )
    parser.add_argument("--version", action="version", version=f"isogclr {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_index(commands)
    _add_state(commands)
    _add_report(commands)
    add_eval(commands)
    add_linear(commands)
    add_export(commands)
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

    folder = options.table.absolute().parent
    if not folder.is_dir():
        raise ConfigError([f"{options.table}: there is no folder {folder}: create it, or name another"])
    index = None
    if options.index is not None:
        from isogclr.shard_index.index import ShardIndex  # noqa: PLC0415

        index = ShardIndex.load(options.index)
    count = export_state(find_snapshot(options.path), options.table, index)
    print(f"wrote {count:,} rows to {options.table}")


def _run_state_verify(options: argparse.Namespace) -> None:
    from isogclr.state.inspect import verify  # noqa: PLC0415

    print(verify(options.path))


def _add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("report", help="one HTML page about one or several runs, with PNG and CSV files")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder LOGS/NAME that training wrote")
    parser.add_argument("--output", type=Path, help="folder to write to (default: report in the first run)")
    parser.add_argument("--index", type=Path, help="shard index, if not where the run's configuration says")
    parser.add_argument("--shards", metavar="PATTERN", help="where the data is now, as in --train-data or --data")
    parser.add_argument(
        "--detail", metavar="NAME", help="run whose samples are shown (default: the first that can)"
    )
    parser.add_argument(
        "--samples", type=int, default=4000, help="random samples to read and embed (default: 4000)"
    )
    parser.add_argument("--extremes", type=int, default=16, help="hottest and coldest samples shown (default: 16)")
    parser.add_argument("--row", type=int, action="append", default=[], help="show hard negatives of this row too")
    parser.add_argument("--model", help="open_clip's name of the model, for a checkpoint that does not say it")
    parser.add_argument("--device", default="cpu", help="where embeddings are computed")
    parser.add_argument("--no-embeddings", action="store_true", help="do not load the model")
    parser.set_defaults(run=_run_report)


def _run_report(options: argparse.Namespace) -> None:
    try:
        from isogclr.report.make import Options, make_report  # noqa: PLC0415 (matplotlib is slow to import)
    except ImportError as error:
        raise InputError(
            f"{error}: a report needs matplotlib and jinja2; `pip install 'isogclr[report]'`"
        ) from error

    def load_embedder(checkpoint: Path) -> Embed:
        from isogclr.models import embeddings  # noqa: PLC0415 (torch)

        return embeddings.load_embedder(checkpoint, options.model, options.device)

    chosen = Options(
        index=options.index,
        shards=options.shards,
        detail=options.detail,
        samples=options.samples,
        extremes=options.extremes,
        chosen=tuple(options.row),
    )
    output = options.output or options.runs[0] / "report"
    loader = None if options.no_embeddings else load_embedder
    with _writing_to(output):
        path = make_report(options.runs, output, chosen, loader, say=_say)
    print(path.absolute())


def _say(text: str) -> None:
    print(_printable(text), file=sys.stderr)


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("demo", help="train on emoji with iSogCLR and CLIP, compare, and write the report")
    parser.add_argument("--output", type=Path, default=Path("isogclr-demo"), help="folder (default: %(default)s)")
    parser.add_argument("--epochs", type=positive, default=8, help="with each loss (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="(default: %(default)s)")
    parser.set_defaults(run=_run_demo)


def _run_demo(options: argparse.Namespace) -> None:
    from isogclr import demo  # noqa: PLC0415 (tqdm)

    runs = demo.train_all(demo.Options(options.output, options.epochs, options.seed), say=print)
    print(f"\n{demo.recall_table(runs)}\n")
    print("The report: ", end="", flush=True)
    main(["report", *map(str, runs), "--output", str(options.output / "report")])


def _add_index(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser("index", help="give every sample of a data set a row: build, info, verify, lookup")
    actions = group.add_subparsers(title="actions", required=True, metavar="ACTION")
    _add_index_build(actions)

    info = actions.add_parser("info", help="what an index holds")
    info.add_argument("index", help="directory of the index")
    info.add_argument("--shards", action="store_true", help="one line for each shard, too")
    info.set_defaults(run=_run_index_info)

    verify = actions.add_parser("verify", help="read every byte of an index, and on demand its shards again")
    verify.add_argument("index", help="directory of the index")
    verify.add_argument("--shards", metavar="PATTERN", help="read these shards and compare, as in --train-data")
    verify.add_argument("--all-shards", action="store_true", help="read the shards where the index saw them last")
    verify.add_argument(
        "--workers", type=int, default=None, help="processes that read (default: up to one for each core)"
    )
    verify.set_defaults(run=_run_index_verify)

    lookup = actions.add_parser("lookup", help="the row of a sample, or the samples of rows")
    lookup.add_argument("index", help="directory of the index")
    lookup.add_argument("shard", nargs="?", help="id or address of a shard")
    lookup.add_argument("keys", nargs="*", metavar="KEY", help="keys of the shard; none means all")
    lookup.add_argument(
        "--row", type=int, nargs="+", default=None, help="print shard and key of these rows instead"
    )
    lookup.set_defaults(run=_run_index_lookup)


def _add_index_build(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    build = actions.add_parser("build", help="build an index, or bring it up to date; rows never move")
    build.add_argument("index", help="directory of the index")
    build.add_argument(
        "sources",
        help="shards or table, as in open_clip's --train-data (braces, ::); a folder of pictures or CIFAR's",
    )
    build.add_argument(
        "--workers", type=int, default=None, help="processes that read (default: up to one for each core)"
    )
    build.add_argument("--reread", action="store_true", help="read shards again that seem unchanged")
    build.add_argument("--quiet", action="store_true", help="no progress bar")
    build.add_argument("--dataset-type", choices=("auto", "webdataset", "csv"), default="auto")
    build.add_argument("--csv-separator", default=CsvColumns.separator)
    build.add_argument("--csv-img-key", default=CsvColumns.image)
    build.add_argument("--csv-caption-key", default=CsvColumns.caption)
    build.set_defaults(run=_run_index_build)


def _run_index_build(options: argparse.Namespace) -> None:
    from isogclr.shard_index.build import build_index  # noqa: PLC0415 (numpy takes longer to import than --help may take)

    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        summary = build_index(
            options.sources,
            options.index,
            workers=options.workers,
            progress=not options.quiet,
            dataset_type=options.dataset_type,
            csv_columns=CsvColumns(options.csv_separator, options.csv_img_key, options.csv_caption_key),
            reread=options.reread,
        )
    for note in notes:
        print(f"isogclr: warning: {_printable(str(note.message))}", file=sys.stderr)
    print(
        f"{summary.number_of_rows:,} rows, {summary.new_rows:,} of them new; shards: {summary.new_shards:,} new, "
        f"{summary.changed_shards:,} changed, {summary.moved_shards:,} moved, {summary.known_shards:,} known, "
        f"{summary.absent_shards:,} in the index but not in the sources"
    )


def _run_index_info(options: argparse.Namespace) -> None:
    from isogclr.shard_index.index import ShardIndex  # noqa: PLC0415

    index = ShardIndex.load(options.index)
    shards = index.shards()
    samples = sum(shard.samples for shard in shards)
    print(f"rows         {index.number_of_rows:,}")
    print(f"samples      {samples:,} (rows of keys that are gone: {index.number_of_rows - samples:,})")
    print(f"shards       {len(shards):,} ({sum(not shard.present for shard in shards):,} not in the last sources)")
    print(f"fingerprint  {index.fingerprint}")
    if options.shards:
        for shard in shards:
            present = "present" if shard.present else "absent"
            print(f"{_printable(shard.id)}\t{shard.samples}\t{present}\t{_printable(shard.url)}")


def _run_index_verify(options: argparse.Namespace) -> None:
    from isogclr.shard_index.index import ShardIndex  # noqa: PLC0415
    from isogclr.shard_index.picture_layouts import picture_shards  # noqa: PLC0415

    index = ShardIndex.load(options.index)
    index.verify()
    print(f"the index is whole: {index.number_of_rows:,} rows, fingerprint {index.fingerprint}")
    if options.shards is not None or options.all_shards:
        urls = None if options.shards is None else picture_shards(options.shards)
        index.verify_shards(urls, workers=options.workers, progress=True)
        print("the shards are those that it was built from (a table: by its size)")


def _run_index_lookup(options: argparse.Namespace) -> None:
    from isogclr.shard_index.index import ShardIndex  # noqa: PLC0415

    index = ShardIndex.load(options.index)
    if options.row is not None:
        for row, location in zip(options.row, index.locate(options.row), strict=True):
            print(f"{row}\t{_printable(location.shard)}\t{_printable(location.key)}")
        return
    if options.shard is None:
        raise InputError("lookup: name a shard and keys, or --row")
    for key in options.keys or index.shard_by_name(options.shard):
        print(f"{index.row(options.shard, key)}\t{_printable(key)}")


def _printable(text: str) -> str:
    """One line, whatever bytes a name has: those that a terminal would obey are written as escapes."""
    decoded = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(
        letter.encode("unicode_escape").decode() if unicodedata.category(letter) in _COMMANDS else letter
        for letter in decoded
    )
