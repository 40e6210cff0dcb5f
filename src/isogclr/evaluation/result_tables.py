"""Our rows beside the paper's, with the differences: for the terminal, as Markdown, as CSV. In percent."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isogclr.evaluation.paper import PaperRow, paper_rows
from isogclr.evaluation.results import Result
from isogclr.evaluation.suites import LINEAR, known_dataset, metric_names
from isogclr.spreadsheet import cell

SHORT = {"image_retrieval_recall@": "IR@", "text_retrieval_recall@": "TR@", "acc": "top-"}
NAMES = {"mean_per_class_recall": "per class", "knn_acc1": "kNN"} | {
    f"{part}_recall": part for part in ("head", "middle", "tail")
}


@dataclass(frozen=True)
class OurRow:
    """One checkpoint, or several that differ in their seed only: percent, deviation (of the sample, n − 1)."""

    label: str
    pretrained: bool | None
    loss: str | None
    runs: int
    values: dict[str, tuple[float, float | None]]
    epochs: float | None = None


@dataclass(frozen=True)
class Table:
    """All that is known of one data set. Differences are given only if it is the paper's test split."""

    dataset: str
    task: str
    metrics: tuple[str, ...]
    images: int
    comparable: bool
    paper: list[PaperRow]
    ours: list[OurRow]


def tables_of(results: Sequence[Result], all_are_seeds: bool = False, ablations: bool = False) -> list[Table]:
    """One table per data set, in the order of the results; the paper's ablations, where it has any, on demand."""
    tables = []
    for dataset in dict.fromkeys(result.dataset for result in results):
        found = [result for result in results if result.dataset == dataset]
        groups = [found] if all_are_seeds else _repetitions(found)
        present = {name for result in found for name in result.metrics}
        tables.append(
            Table(
                dataset=dataset,
                task=found[0].task,
                metrics=tuple(name for name in metric_names(found[0].task) if name in present),
                images=found[0].images,
                comparable=all(result.comparable for result in found),
                paper=paper_rows(dataset, found[0].task, ablations),
                ours=[_our_row(group) for group in groups],
            )
        )
    return tables


def _repetitions(results: Iterable[Result]) -> list[list[Result]]:
    """Runs of equal recipe and different seeds belong together; everything else stands alone."""
    groups: dict[object, list[Result]] = {}
    for number, result in enumerate(results):
        recipe = result.identity.recipe
        group = groups.setdefault(number if recipe is None else recipe, [])
        if any(other.identity.seed == result.identity.seed for other in group):
            groups[number] = [result]
        else:
            group.append(result)
    return list(groups.values())


def _our_row(group: Sequence[Result]) -> OurRow:
    values = {}
    for metric in group[0].metrics:
        percents = [100 * result.metrics[metric] for result in group]
        deviation = statistics.stdev(percents) if len(percents) > 1 else None
        values[metric] = (statistics.fmean(percents), deviation)
    first = group[0].identity
    pretrained = first.pretrained if len({result.identity.pretrained for result in group}) == 1 else None
    return OurRow(_label(group), pretrained, first.loss, len(group), values, first.epoch)


def _label(group: Sequence[Result]) -> str:
    path = Path(group[0].checkpoint)
    run = path.parent.parent if path.parent.name == "checkpoints" else path.parent
    name = f"{run.name}/{path.stem}" if run.name else path.stem
    loss = f" {group[0].identity.loss}" if group[0].identity.loss else ""
    return f"{name}{loss}" + (f" ({len(group)} seeds)" if len(group) > 1 else "")


def rows_of(table: Table) -> list[list[str]]:
    """Cells as text: header, the paper's rows, ours, and below each of ours its differences to the paper's."""
    second = "epochs" if table.task == LINEAR else "encoders"
    lines = [["", second, *(_short(metric) for metric in table.metrics)]]
    for row in table.paper:
        cells = [_cell(*_figure(row, metric)) for metric in table.metrics]
        lines.append([_method(row), _kind(table, row), *cells])
    for ours in table.ours:
        cells = [_cell(*ours.values.get(metric, (None, None))) for metric in table.metrics]
        lines.append([ours.label, _kind(table, ours), *cells])
        lines += [_differences(table, ours, row) for row in _compared(table, ours)]
    return lines


def _kind(table: Table, row: PaperRow | OurRow) -> str:
    """What a reader must know before he compares two rows: in a linear evaluation all start from scratch."""
    if table.task == LINEAR:
        return "" if row.epochs is None else f"{row.epochs:g}"
    return _encoders(row.pretrained)


def _compared(table: Table, ours: OurRow) -> list[PaperRow]:
    """Published rows that differences are given to. With nine methods, only those of the same one."""
    if not table.comparable:
        return []
    if table.task == LINEAR:
        return [row for row in table.paper if row.loss == ours.loss and row.variant is None]
    return table.paper


def _differences(table: Table, ours: OurRow, row: PaperRow) -> list[str]:
    cells = []
    for metric in table.metrics:
        difference = _difference(ours, row, metric)
        cells.append("" if difference is None else f"{difference:+.2f}".replace("-", "−"))
    return [f"  minus {row.method}", _kind(table, row) if table.task == LINEAR else "", *cells]


def _difference(ours: OurRow, row: PaperRow, metric: str) -> float | None:
    if metric not in row.figures or metric not in ours.values:
        return None
    return ours.values[metric][0] - row.figures[metric].value


def heading(table: Table) -> str:
    """Data set, size, and why there are no differences if there are none."""
    known = known_dataset(table.dataset, table.task)
    title = known.title if known else table.dataset
    if table.task == LINEAR:
        title += ", linear evaluation"
    if table.comparable or known is None or known.images is None:
        return f"{title}, {table.images:,} images, in percent"
    return (
        f"{title}, {table.images:,} images (the official test split has {known.images:,}: no differences to "
        "published figures), in percent"
    )


def as_text(tables: Sequence[Table]) -> str:
    """For the terminal: columns aligned."""
    blocks = []
    for table in tables:
        lines = rows_of(table)
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        shown = [
            "  ".join(
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        blocks.append("\n".join([heading(table), *shown]))
    return "\n\n".join(blocks)


def as_markdown(tables: Sequence[Table]) -> str:
    """A section a data set."""
    blocks = []
    for table in tables:
        first, *rest = [[cell.strip() for cell in line] for line in rows_of(table)]
        rule = ["---", "---", *("---:" for _ in first[2:])]
        blocks.append(
            "\n".join(
                [f"## {heading(table)}", "", *("| " + " | ".join(line) + " |" for line in (first, rule, *rest))]
            )
        )
    sources = dict.fromkeys(row.source for table in tables for row in table.paper)
    notes = [f"* {source}" for source in sources]
    return "\n\n".join([*blocks, *(["\n".join(["Published figures:", "", *notes])] if notes else [])]) + "\n"


def as_csv(tables: Sequence[Table]) -> str:
    """One line a figure: for each of ours the differences to all published ones."""
    methods = list(dict.fromkeys(row.label for table in tables for row in table.paper))
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["dataset", "metric", "row", "source", "encoders", "percent", "deviation", "runs", "images"]
        + [f"minus {method}" for method in methods]
    )
    for table in tables:
        for metric in table.metrics:
            for row in table.paper:
                if metric in row.figures:
                    figure = row.figures[metric]
                    where = f"table {figure.table}" if figure.table else "published"
                    known = [row.label, where, _encoders(row.pretrained), figure.value, figure.deviation]
                    writer.writerow(map(cell, [table.dataset, metric, *known, "", ""]))
            for ours in table.ours:
                value, deviation = ours.values.get(metric, (None, None))
                by_method = {row.label: _difference(ours, row, metric) for row in _compared(table, ours)}
                known = [ours.label, "ours", _encoders(ours.pretrained), _rounded(value), _rounded(deviation)]
                differences = [_rounded(by_method.get(method)) for method in methods]
                writer.writerow(map(cell, [table.dataset, metric, *known, ours.runs, table.images, *differences]))
    return stream.getvalue()


def _figure(row: PaperRow, metric: str) -> tuple[float | None, float | None]:
    figure = row.figures.get(metric)
    return (figure.value, figure.deviation) if figure else (None, None)


def _method(row: PaperRow) -> str:
    tables = sorted({figure.table for figure in row.figures.values() if figure.table})
    name = f"{row.method}, {row.variant}" if row.variant else row.method
    return f"{name} (paper, table {tables[0]})" if tables else f"{name} (published)"


def _encoders(pretrained: bool | None) -> str:
    return "not known" if pretrained is None else "pretrained" if pretrained else "from scratch"


def _short(metric: str) -> str:
    for long, short in SHORT.items():
        if metric.startswith(long):
            return short + metric.removeprefix(long)
    return NAMES.get(metric, metric)


def _cell(value: float | None, deviation: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
