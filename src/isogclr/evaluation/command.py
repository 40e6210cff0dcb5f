"""The body of `isogclr eval`: look at the disk, measure what is not cached, write files and a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from isogclr.durable import replace_file
from isogclr.errors import EvaluationError, IsogclrError
from isogclr.evaluation.data_folders import Located, locate
from isogclr.evaluation.download import download
from isogclr.evaluation.result_tables import as_csv, as_markdown, as_text, tables_of
from isogclr.evaluation.results import (
    Result,
    cache_key,
    find_cached,
    identity_of,
    make_results_folder,
    result_path,
    run_configuration,
    save_result,
)
from isogclr.evaluation.suites import Dataset, choose


@dataclass(frozen=True)
class EvalRequest:
    """What the command line asks for."""

    checkpoints: tuple[Path, ...]
    data_root: Path
    output: Path
    suite: str = "paper"
    datasets: tuple[str, ...] = ()
    task: str | None = None
    model: str | None = None
    device: str = "cpu"
    precision: str = "fp32"
    batch_size: int = 64
    workers: int = 0
    quiet: bool = False
    download: bool = False
    seeds: bool = False
    recompute: bool = False


class Report:
    """Failures are told when they happen and counted for the exit code."""

    def __init__(self, quiet: bool) -> None:
        self.failures = 0
        self._quiet = quiet

    def say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)

    def fail(self, error: object) -> None:
        self.failures += 1
        print(f"isogclr: error: {error}", file=sys.stderr, flush=True)


def run_eval(request: EvalRequest) -> int:
    """Exit code 0 if every checkpoint was measured on every data set, 1 otherwise."""
    report = Report(request.quiet)
    datasets = choose(request.suite, request.datasets, request.task)
    located = _locate_all(datasets, request, report)
    make_results_folder(request.output)
    results = []
    for checkpoint in dict.fromkeys(request.checkpoints):
        try:
            results += _evaluate_checkpoint(checkpoint, located, request, report)
        except IsogclrError as error:
            report.fail(error)
    if results:
        write_tables(results, request.output, request.seeds)
    if report.failures:
        print(f"isogclr: {report.failures} failed, {len(results)} measured or cached", file=sys.stderr)
    return 1 if report.failures else 0


def _locate_all(datasets: Sequence[Dataset], request: EvalRequest, report: Report) -> list[Located]:
    found = []
    for dataset in datasets:
        try:
            found.append(_locate(dataset, request))
        except EvaluationError as error:
            report.fail(error)
            continue
        form = f"webdataset copy, {found[-1].shards} shards" if found[-1].shards else "native folder"
        report.say(f"{dataset.name}: {found[-1].images:,} images in {found[-1].folder} ({form})")
    return found


def _locate(dataset: Dataset, request: EvalRequest) -> Located:
    try:
        located = locate(dataset, request.data_root)
    except EvaluationError:
        if not request.download:
            raise
        download(dataset, request.data_root)
        located = locate(dataset, request.data_root)
    if request.task not in (None, located.task):
        raise EvaluationError(f"{dataset.name}: {located.folder} is for {located.task}, not for {request.task}")
    return located


def _evaluate_checkpoint(
    checkpoint: Path, located: Sequence[Located], request: EvalRequest, report: Report
) -> list[Result]:
    from isogclr.models.checkpoints import content_hash  # noqa: PLC0415 (torch takes seconds to import)

    fingerprint = content_hash(checkpoint)
    keys = [cache_key(fingerprint, request.model, one, request.precision) for one in located]
    cached = (
        [None] * len(keys)
        if request.recompute
        else [find_cached(request.output, checkpoint, one, key) for one, key in zip(located, keys, strict=True)]
    )
    missing = [(one, key) for one, key, hit in zip(located, keys, cached, strict=True) if hit is None]
    if len(missing) < len(keys):
        report.say(f"{checkpoint}: {len(keys) - len(missing)} of {len(keys)} results are there already")
    found = [hit for hit in cached if hit is not None]
    return found + (_measure_all(checkpoint, missing, request, report) if missing else [])


def _measure_all(
    checkpoint: Path, missing: Sequence[tuple[Located, str]], request: EvalRequest, report: Report
) -> list[Result]:
    from isogclr.evaluation.measure import Settings, measure  # noqa: PLC0415
    from isogclr.models.checkpoints import load_model  # noqa: PLC0415
    from isogclr.models.encoder import Encoder, usable_device  # noqa: PLC0415

    device = usable_device(request.device)
    loaded = load_model(checkpoint, request.model, device)
    encoder = Encoder(loaded.model, loaded.preprocess, loaded.tokenizer, device, request.precision)
    settings = Settings(request.batch_size, request.workers, request.quiet)
    identity = identity_of(loaded.name, loaded.weights.details, loaded.weights.epoch, run_configuration(checkpoint))
    results = []
    for located, key in missing:
        report.say(f"{checkpoint}: {located.dataset.title}, {located.task}")
        try:
            metrics = measure(encoder, located, settings)
        except IsogclrError as error:
            report.fail(f"{checkpoint}: {error}")
            continue
        result = Result(
            dataset=located.dataset.name,
            task=located.task,
            checkpoint=str(checkpoint),
            identity=identity,
            images=located.images,
            comparable=located.comparable,
            metrics=metrics,
        )
        save_result(result_path(request.output, checkpoint, located, key), result, located, key, request.precision)
        results.append(result)
    return results


def write_tables(
    results: Sequence[Result], output: Path, all_are_seeds: bool = False, ablations: bool = False
) -> None:
    """Into files, and to the terminal."""
    order = {name: number for number, name in enumerate(dict.fromkeys(result.dataset for result in results))}
    tables = tables_of(sorted(results, key=lambda result: order[result.dataset]), all_are_seeds, ablations)
    replace_file(output / "table.md", [as_markdown(tables).encode()])
    replace_file(output / "table.csv", [as_csv(tables).encode()])
    print(as_text(tables))
    print(f"\nwritten to {output}: table.md, table.csv, one JSON file per result")
