"""Tables of the report: a run in a few numbers, the health of stores, settings side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from isogclr.report.curves import KNN, recalls
from isogclr.report.detail import Detail
from isogclr.report.directions import sides_in, temperature_column
from isogclr.report.distributions import summary
from isogclr.report.loading import Run
from isogclr.report.page import RunCard, Setting
from isogclr.report.scan import Column, Scan
from isogclr.report.wording import number, share

_TEXT_CHARACTERS = 300


def run_card(run: Run, label: str, scan: Scan | None) -> RunCard:
    """What one wants to know of a run first."""
    facts: list[tuple[str, str]] = []
    for direction, title in recalls(run).items():
        value = run.journal.last("val", f"{direction}_R@1")
        if value is not None:
            facts.append((f"R@1 {title}", share(value)))
    top1 = run.journal.last("val", "imagenet-zeroshot-val-top1")
    if top1 is not None:
        facts.append(("ImageNet zero-shot top-1", share(top1)))
    knn = run.journal.last("val", KNN)
    if knn is not None:
        facts.append(("nearest neighbours, top-1", share(knn)))
    for side, column in _temperatures(scan):
        if column.number:
            facts.append((f"{side} τ, mean ± sd", f"{number(column.mean)} ± {number(column.deviation, 2)}"))
    rate = run.journal.last("train", "samples_per_second")
    if rate is not None:
        facts.append(("samples per second", number(round(rate))))
    if run.journal.starts > 1:
        facts.append(("resumed", f"{run.journal.starts - 1} times"))
    return RunCard(label, run.loss, run.model, run.progress, facts)


def _temperatures(scan: Scan | None) -> Iterator[tuple[str, Column]]:
    """Each side with what is known of its temperatures."""
    columns = {} if scan is None else scan.columns
    return ((side, columns[temperature_column(side)]) for side in sides_in(list(columns)))


def health_table(runs: Sequence[Run], scans: Mapping[str, Scan]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Names of the runs with a store, and lines of (name, one value per run)."""
    names = [run.name for run in runs if run.name in scans]
    columns = [_health(run, scans[run.name]) for run in runs if run.name in scans]
    lines = list(dict.fromkeys(name for column in columns for name in column))
    return names, [(name, [column.get(name, "–") for column in columns]) for name in lines]


def _health(run: Run, scan: Scan) -> dict[str, str]:
    visits = sum(count * number_of for number_of, count in enumerate(scan.visits.tolist()))
    lines = {
        "step of the snapshot": number(scan.step),
        "rows": number(scan.rows),
        "rows visited": f"{number(scan.visited)} ({share(scan.visited / scan.rows) if scan.rows else '–'})",
        "visits per visited row, mean": number(visits / scan.visited) if scan.visited else "–",
        "bytes per row": number(scan.row_bytes),
        "last epoch of its rows": _epochs(scan),
    }
    for side, column in _temperatures(scan):
        found = summary(column)
        lines[f"{side} τ, mean ± sd"] = f"{number(found['mean'])} ± {number(found['deviation'], 2)}"
        lines[f"{side} τ, 5 %, 50 %, 95 %"] = ", ".join(number(found[key]) for key in ("q05", "median", "q95"))
        for bound, count in ((column.lower, column.at_lower), (column.upper, column.at_upper)):
            end = "lower" if bound is column.lower else "upper"
            text = "bounds unknown" if bound is None else f"{share(count / max(1, column.number))} (τ = {bound:g})"
            lines[f"{side} τ at its {end} bound"] = text
        lines[f"{side} τ not finite"] = number(column.not_finite)
    kept = run.journal.last("train", "kept_rows")
    if kept is not None:
        lines["updates refused in the last logged step"] = number(kept)
    lines["index fingerprint"] = f"{scan.fingerprint[:16]}…"
    return lines


def _epochs(scan: Scan) -> str:
    newest = sorted(scan.last_epochs, reverse=True)[:3]
    parts = [f"{epoch}: {share(scan.last_epochs[epoch] / max(1, scan.visited))}" for epoch in newest]
    return ", ".join(parts) + (", …" if len(scan.last_epochs) > 3 else "")


def settings_table(runs: Sequence[Run]) -> tuple[list[Setting], list[Setting]]:
    """Settings, differing ones first; apart from them, the rest of what mirrors the command line."""
    flat = [_flatten(run.config) for run in runs]
    names = sorted({name for column in flat for name in column})
    lines = []
    for name in names:
        values = [column.get(name, "–") for column in flat]
        lines.append((name, values, len(set(values)) > 1))
    lines.sort(key=lambda line: (not line[2], line[0]))
    rest = [line for line in lines if line[0].startswith("settings.") and not line[2]]
    return [line for line in lines if line not in rest], rest


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _flatten(value, f"{prefix}{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found[f"{prefix}{name}"] = text if len(text) <= _TEXT_CHARACTERS else text[:_TEXT_CHARACTERS] + "…"
    return found


def sample_table(detail: Detail) -> dict[str, list[Any]]:
    """All samples that were read, with their whole captions if they have any."""
    shown = [detail.samples[row] for row in sorted(detail.samples)]
    table: dict[str, list[Any]] = {
        "row": [sample.row for sample in shown],
        "shard": [sample.shard for sample in shown],
        "key": [sample.key for sample in shown],
    }
    if detail.labels is not None:
        table["class"] = [sample.label or "" for sample in shown]
    if detail.has_captions:
        table["caption"] = [detail.full_captions.get(sample.row, "") for sample in shown]
    for side in detail.directions:
        table[temperature_column(side)] = [sample.temperature[side] for sample in shown]
    table["visits"] = [sample.visits for sample in shown]
    for side in detail.directions:
        table[f"{side}_neighbour_similarity"] = [sample.neighbours[side] for sample in shown]
    if detail.has_captions:
        table["word_frequency"] = [sample.words for sample in shown]
    table["problem"] = [sample.problem for sample in shown]
    return table


def negative_table(detail: Detail) -> dict[str, list[Any]]:
    """The hard negatives of all anchors, with classes if they are known."""
    names = ["anchor_row", "anchor_side", "negative_row", "hardness", "weight", "effective_negatives"]
    names += ["anchor_class", "negative_class", "weight_of_own_class"] if detail.labels is not None else []
    table: dict[str, list[Any]] = {name: [] for name in names}
    for row, directions in detail.anchors.items():
        for side, found in directions.items():
            for position, hardness, weight in zip(
                found.positions.tolist(), found.hardness.tolist(), found.weights.tolist(), strict=True
            ):
                other = detail.embedded[position]
                cells = [row, side, other, hardness, weight, found.effective]
                if detail.labels is not None:
                    labels = (detail.samples[one].label or "" for one in (row, other))
                    cells += [*labels, found.own_class]
                for name, cell in zip(table, cells, strict=True):
                    table[name].append(cell)
    return table
