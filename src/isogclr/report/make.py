"""The report, from run directories to files."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.durable import replace_file
from isogclr.errors import InputError, IsogclrError
from isogclr.report import arrangement, class_figures, curves, distributions, relations, summaries
from isogclr.report.canvas import write_table
from isogclr.report.class_tables import class_table
from isogclr.report.detail import MAP_POINTS, Detail, collect
from isogclr.report.directions import temperature_column
from isogclr.report.loading import Run, load_runs
from isogclr.report.model_of_run import LoadEmbedder, load_model_of
from isogclr.report.page import Page, render
from isogclr.report.run_data import Opened, Reader, RunData, open_data
from isogclr.report.scan import Scan, scan_store
from isogclr.report.side_by_side import side_by_side

_SHARDS_OPENED = 64  # for the random sample, however many shards there are


@dataclass(frozen=True)
class Options:
    """What to show.

    Args:
        index: shard index of the runs, if not where their configuration says.
        shards: where the data is now, as in `--train-data` or `--data`, if not where the run found it.
        detail: name of the run whose samples are shown; None is the first with temperatures.
        samples: how many random samples are read, and embedded.
        extremes: how many samples are shown of each end of each temperature.
        chosen: rows whose hard negatives are shown too.
    """

    index: Path | None = None
    shards: str | None = None
    detail: str | None = None
    samples: int = 4000
    extremes: int = 16
    chosen: tuple[int, ...] = field(default_factory=tuple)


def make_report(
    paths: Sequence[Path],
    output: Path,
    options: Options | None = None,
    load_embedder: LoadEmbedder | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write output/report.html with its figures and data; returns its path.

    What can not be shown (no store, shards that moved, a model that does not load) is said on the page.
    """
    options = options or Options()
    runs = load_runs(paths, options.index)
    detailed = _detailed(runs, options)
    output.mkdir(parents=True, exist_ok=True)
    page = Page(_title(runs), time.strftime("%Y-%m-%d %H:%M"), _version())
    opened: Opened = {}
    data: dict[str, RunData] = {}
    scans: dict[str, Scan] = {}
    for run in runs:
        say(f"reading {run.name} …")
        if run is detailed or run.has_pictures_alone:
            data[run.name] = open_data(run, options.shards, opened)
        scan = _scan(run, run is detailed, data.get(run.name, RunData()), options)
        if scan is not None:
            scans[run.name] = scan
    _add_overview(page, runs, scans, output)
    _add_classes(page, runs, scans, output)
    if detailed is not None and detailed.name in scans and scans[detailed.name].visited:
        say(f"reading {'samples' if load_embedder is None else 'and embedding samples'} of {detailed.name} …")
        _add_detail(page, detailed, scans[detailed.name], data[detailed.name], options, load_embedder, output)
    if load_embedder is not None:
        shown = None if detailed is None or page.detail is None else (detailed, page.detail)
        page.arrangement = side_by_side(runs, scans, data, shown, load_embedder, say, output)
    page.notes = [(run.name, note) for run in runs for note in run.notes] + page.notes
    for name, note in page.notes:
        say(f"note, {name}: {note}")
    path = output / "report.html"
    replace_file(path, [render(page).encode("utf-8")])
    return path


def _detailed(runs: Sequence[Run], options: Options) -> Run | None:
    """The run whose samples are shown."""
    if options.detail is not None:
        for run in runs:
            if run.name == options.detail:
                return run
        raise InputError(f"--detail: found {options.detail!r}, expected one of {[run.name for run in runs]}")
    return next((run for run in runs if run.has_temperatures), None)


def _scan(run: Run, is_detailed: bool, data: RunData, options: Options) -> Scan | None:
    if run.snapshot is None:
        return None
    bounds = (run.loss_option("temperature_min"), run.loss_option("temperature_max"))
    directions = run.directions if run.has_temperatures else ()
    within = None if data.reader is None else data.reader.some_shards(_SHARDS_OPENED)
    if is_detailed:
        sizes: dict[str, Any] = {
            "extremes": options.extremes,
            "sample": options.samples,
            "within": within,
            "chosen": options.chosen,
        }
    else:
        sizes = {"extremes": 0, "sample": MAP_POINTS if run.has_pictures_alone else 0, "within": within}
    try:
        return scan_store(run.snapshot, bounds, directions=directions, labels=data.labels, **sizes)
    except (IsogclrError, OSError) as error:
        run.notes.append(f"Its store can not be read to the end, so no samples are shown: {error}")
        return None


def _add_overview(page: Page, runs: Sequence[Run], scans: dict[str, Scan], output: Path) -> None:
    page.runs = [summaries.run_card(run, curves.label(run, runs), scans.get(run.name)) for run in runs]
    found = [
        curves.loss_figure(runs, output),
        curves.recall_figure(runs, output),
        curves.accuracy_figure(runs, output),
    ]
    page.curves = [picture for picture in found if picture is not None]
    found = [distributions.final_figure(runs, scans, output), curves.temperature_curves(runs, output)]
    with_temperatures = [run for run in runs if run.has_temperatures]
    for number, run in enumerate(with_temperatures):
        name = f"epochs_{number + 1}" if number else "epochs"
        picture = distributions.ridge_figure(run, runs.index(run), output, name)
        if picture is not None and len(with_temperatures) > 1:
            picture = replace(picture, title=f"{picture.title}: {run.name}")
        found.append(picture)
    page.distributions = [picture for picture in found if picture is not None]
    page.health = distributions.health_figure(runs, scans, output)
    page.stores, page.health_table = summaries.health_table(runs, scans)
    page.settings, page.more_settings = summaries.settings_table(runs)


def _add_classes(page: Page, runs: Sequence[Run], scans: dict[str, Scan], output: Path) -> None:
    """Runs with the same classes share figures; runs without temperatures have nothing to show here."""
    groups: dict[tuple[str, ...], list[class_figures.ClassRun]] = {}
    for number, run in enumerate(runs):
        classes = scans[run.name].classes if run.name in scans else None
        if classes is None or not classes.columns or not classes.sizes.any():
            continue
        column = classes.columns[temperature_column(run.directions[0])]
        shown = class_figures.ClassRun(number, curves.label(run, runs), classes, column)
        groups.setdefault(classes.names, []).append(shown)
        page.class_tables.append(class_table(shown))
    for place, group in enumerate(groups.values()):
        end = f"_{place + 1}" if place else ""
        found = [
            class_figures.class_figure(group, output, f"classes{end}"),
            class_figures.extremes_figure(group, output, f"class_extremes{end}"),
        ]
        page.classes += [picture for picture in found if picture is not None]


def _add_detail(
    page: Page,
    run: Run,
    scan: Scan,
    data: RunData,
    options: Options,
    load_embedder: LoadEmbedder | None,
    output: Path,
) -> None:
    if not scan.columns:
        return
    reader = data.reader
    embed = None if reader is None else load_model_of(run, load_embedder)
    unknown = [row for row in options.chosen if row not in scan.states]
    if unknown:
        run.notes.append(f"Rows {unknown} were never visited, or are not in the store: no hard negatives of them.")
    chosen = [row for row in options.chosen if row in scan.states]
    detail = collect(scan, run.directions, reader, embed, chosen, output, data.labels)
    page.detail, page.detail_name, page.sampling = detail, run.name, _sampling(scan, options, detail)
    run.notes += detail.notes
    if reader is not None:
        _note_problems(run, reader)
    write_table(output / "data" / "samples.csv", summaries.sample_table(detail))
    if detail.features:
        _add_semantics(page, detail, output)
        if run.has_pictures_alone:
            side = run.directions[0]
            page.extremes_map = arrangement.extremes_map(
                detail.features[side],
                detail.temperatures(side),
                detail.labels,
                detail.classes(detail.embedded),
                output,
            )


def _add_semantics(page: Page, detail: Detail, output: Path) -> None:
    sides = detail.directions
    temperatures = {side: detail.temperatures(side) for side in sides}
    rows = [detail.samples[row] for row in detail.embedded]
    neighbours = {side: _column([sample.neighbours[side] for sample in rows]) for side in sides}
    words = _column([sample.words for sample in rows]) if detail.has_captions else None
    for measure in relations.measures(neighbours, words):
        page.relations.append(relations.relation_figure(measure, temperatures, output, "semantics")[0])
    if detail.map_points:
        values = {
            side: _column([detail.samples[row].temperature[side] for row in detail.map_rows]) for side in sides
        }
        labels, classes = detail.labels, detail.classes(detail.map_rows)
        page.map_picture = relations.map_figure(detail.map_points, values, output, "semantics", labels, classes)
    write_table(output / "data" / "hard_negatives.csv", summaries.negative_table(detail))


def _note_problems(run: Run, reader: Reader) -> None:
    problems = list(reader.problems.values())
    if problems:
        more = f" (and {len(problems) - 1:,} more shards)" if len(problems) > 1 else ""
        run.notes.append(
            f"Shards that can not be read{more}: {problems[0]}. If they were moved, say where with --shards."
        )


def _sampling(scan: Scan, options: Options, detail: Detail) -> str:
    drawn, visited = len(scan.sample_rows), scan.visited
    if drawn == visited:
        text = f"All {visited:,} visited samples were read."
    else:
        text = f"{drawn:,} of {visited:,} visited samples were drawn at random"
        text += "." if scan.population == visited else f", from {_SHARDS_OPENED} shards chosen at random."
        text += " The hottest and coldest are those of all samples."
    if detail.embedded:
        text += f" {len(detail.embedded):,} were embedded with the newest checkpoint"
        text += f"; {len(detail.map_rows):,} random ones are on the map."
    return text


def _column(values: Sequence[float]) -> npt.NDArray[np.float64]:
    return np.array(values, np.float64)


def _title(runs: Sequence[Run]) -> str:
    return runs[0].name if len(runs) == 1 else f"{len(runs)} runs: {', '.join(run.name for run in runs)}"


def _version() -> str:
    try:
        return version("isogclr")
    except PackageNotFoundError:
        return "(not installed)"
