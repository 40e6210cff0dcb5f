"""Tables as Markdown and figures as PNG, from the table of results alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plan
from analysis import Rows, by_seed, estimate, last_value, paired_difference, select
from grid import DataSet
from markdown_tables import MISSING, chosen_table, table
from memory_tables import age_table, estimates_table, memory_tables
from unimodal_tables import unimodal_tables

from isogclr.report.canvas import Frame, Paint, Table, Theme, draw

METHODS = {
    "clip": "CLIP",
    "cyclip": "CyCLIP",
    "sogclr": "SogCLR",
    "isogclr": "iSogCLR",
    "isogclr-log": "iSogCLR, log τ",
    "isogclr-recommended": "iSogCLR, preset",
}
LEARNED = [method for method in METHODS if method.startswith("isogclr")]
COLUMNS = {
    "retrieval": {
        "mean_recall": "mean of all six",
        **{f"image_to_text_R@{rank}": f"image → text R@{rank}" for rank in (1, 5, 10)},
        **{f"text_to_image_R@{rank}": f"text → image R@{rank}" for rank in (1, 5, 10)},
    },
    "zero-shot": {
        "mean_per_class": "mean over classes",
        "head": "head third",
        "middle": "middle",
        "tail": "tail third",
        "accuracy": "all pictures",
    },
}
AGE = "age_of_s.csv"  # of age_of_s.py
ESTIMATES = "estimates_of_s.csv"  # of estimates_of_s.py
WITHOUT_MEMORY = {
    "start-no-memory": "iSogCLR, log τ, no memory",
    "start-newton": "iSogCLR, log τ, no memory, η 1",
    "start-typical": "iSogCLR, log τ, no memory, typical start",
}
COMMONNESS = {
    "near_neighbours": "near neighbours in the embedding",
    "neighbour_similarity": "similarity of the 10 nearest",
    "caption_words": "frequency of the caption's words",
    "class_size": "size of the class",
}
SETTINGS = {
    "batch": "Batch size",
    "rho-batch": "Batch size and ρ",
    "memory-batch": "Batch size and γ",
    "less-data": "Less data",
    "gamma": "γ",
    "memory": "Epochs and γ",
    "rule": "Rules",
    "start-typical": "Typical starts",
}


def write_all(rows: Rows, folder: Path) -> None:
    """`tables.md` and `figures/*.png` with the numbers of each figure in `data/*.csv`."""
    parts = [summary(rows), "### Differences to SogCLR", _differences(rows, "sogclr")]
    for data_set in _from_shards():
        found = select(rows, part="compare", data_set=data_set.name)
        if found:
            parts += [f"### {data_set.name}", _comparison(found, data_set.task), chosen_table(rows, data_set)]
    parts.append(_semantics(rows))
    for name, title in SETTINGS.items():
        found = select(rows, part=name)
        if found:
            parts += [f"### {title}", _settings_table(found)]
    parts += memory_tables(rows) + unimodal_tables(rows)
    if (folder / AGE).exists():
        parts += ["### Error of log s", age_table(folder / AGE)]
    if (folder / ESTIMATES).exists():
        parts += ["### What a better s is worth", estimates_table(folder / ESTIMATES)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tables.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    for figure in (
        _start_figure,
        _rho_figure,
        _batch_figure,
        _curve_figure,
        _start_distribution,
        _semantics_figure,
    ):
        figure(rows, folder)


def _from_shards() -> list[DataSet]:
    """Those that `training.main` was run on; the others have tables of their own."""
    return [one for one in plan.DATA_SETS.values() if one.task in COLUMNS]


def summary(rows: Rows) -> str:
    """Rows methods, columns data sets, the number that settings were chosen by."""
    data_sets = [one for one in _from_shards() if select(rows, part="compare", data_set=one.name)]
    lines = []
    for method, title in METHODS.items():
        cells = [title]
        for data_set in data_sets:
            found = select(rows, part="compare", data_set=data_set.name)
            ours, baseline = select(found, method=method), select(found, method="clip")
            cell = str(estimate(ours, data_set.metric)) if ours else MISSING
            if ours and method != "clip":
                difference, half = paired_difference(ours, baseline, data_set.metric)
                cell += f" ({difference:+.2f} ± {half:.2f})"
            cells.append(cell)
        lines.append(cells)
    return table(["", *(f"{one.name}: {one.metric.replace('_', ' ')}" for one in data_sets)], lines)


def _differences(rows: Rows, baseline: str) -> str:
    """Of the methods with temperatures of their own to another one, in every number of every data set."""
    lines = []
    for data_set in _from_shards():
        found = select(rows, part="compare", data_set=data_set.name)
        for metric, title in COLUMNS[data_set.task].items() if found else ():
            cells = []
            for method in LEARNED:
                ours, theirs = (select(found, method=one) for one in (method, baseline))
                difference, half = paired_difference(ours, theirs, metric)
                cells.append(f"{difference:+.2f} ± {half:.2f}" if ours and theirs else MISSING)
            lines.append([data_set.name, title, *cells])
    return table(["", "", *(METHODS[method] for method in LEARNED)], lines)


def _comparison(rows: Rows, task: str) -> str:
    columns = COLUMNS[task]
    lines = [
        [title, *(str(estimate(select(rows, method=method), metric)) for metric in columns)]
        for method, title in METHODS.items()
        if select(rows, method=method)
    ]
    return table(["", *columns.values()], lines)


def _semantics(rows: Rows) -> str:
    lines = []
    for data_set in plan.DATA_SETS:
        for method in LEARNED:
            found = select(rows, part="compare", data_set=data_set, method=method)
            for name, title in COMMONNESS.items():
                metrics = [f"{side}_temperature_against_{name}" for side in ("image", "text")]
                if any(row["metric"] == metrics[0] for row in found):
                    cells = [str(estimate(found, metric)) for metric in metrics]
                    lines.append([data_set, METHODS[method], title, *cells])
    head = ["data set", "method", "rank correlation of τ with", "image τ", "text τ"]
    return "### Temperatures and semantics\n\n" + table(head, lines)


def _settings_table(rows: Rows) -> str:
    """Every run of an ablation with what it was worth."""
    lines = []
    for method, title in METHODS.items():
        ours = select(rows, method=method)
        for data_set, setting in dict.fromkeys((row["data_set"], row["setting"]) for row in ours):
            found = select(ours, data_set=data_set, setting=setting)
            lines.append([data_set, title, f"`{setting}`", f"{last_value(found, 'mean_recall'):.2f}"])
    return table(["data set", "", "setting", "mean recall, validation"], lines)


def _value(setting: str, name: str) -> float:
    values = dict(part.split("=", 1) for part in setting.split(" "))
    return float(values[name]) if name in values else float("nan")


def _lines(
    rows: Rows, part: str, knobs: dict[str, str], metric: str = "mean_recall"
) -> dict[str, list[tuple[float, float]]]:
    """By method: value of its knob and what came out."""
    found: dict[str, list[tuple[float, float]]] = {}
    for method, knob in knobs.items():
        chosen = select(rows, part=part, data_set="emoji-frozen", method=method)
        points = {
            _value(setting, knob): last_value(select(chosen, setting=setting), metric)
            for setting in {row["setting"] for row in chosen}
        }
        found[method] = sorted(points.items())
    return {method: points for method, points in found.items() if points}


def _draw_lines(
    folder: Path,
    name: str,
    title: str,
    lines: dict[str, list[tuple[float, float]]],
    axis: str,
    logarithmic: bool = False,
    split: str = "validation",
) -> None:
    if not lines:
        return

    def paint(panels: Sequence[Any], theme: Theme) -> None:
        for number, (method, points) in enumerate(lines.items()):
            xs, ys = zip(*points, strict=True)
            panels[0].plot(xs, ys, marker="o", label=METHODS.get(method, method), **theme.line(number))
        if logarithmic:
            panels[0].set_xscale("log")
            ticks = sorted({x for points in lines.values() for x, _ in points})
            panels[0].set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            panels[0].minorticks_off()
        panels[0].set_xlabel(axis)
        panels[0].set_ylabel(f"mean recall, {split} (%)")
        panels[0].legend()

    table = {
        "method": [method for method, points in lines.items() for _ in points],
        axis: [x for points in lines.values() for x, _ in points],
        "mean_recall": [y for points in lines.values() for _, y in points],
    }
    _save(folder, name, title, paint, table)


def _save(
    folder: Path,
    name: str,
    title: str,
    paint: Paint,
    table: Table,
    panels: int = 1,
) -> None:
    frame = Frame(name, title, "", title, panels=panels, height=3.4, width=5.2, on_page=False)
    draw(folder, frame, paint, table)


def _start_figure(rows: Rows, folder: Path) -> None:
    knobs = {
        "clip": "init_temperature",
        "sogclr": "sogclr_temperature",
        "isogclr": "isogclr_temperature_init",
        "isogclr-log": "isogclr_temperature_init",
    }
    lines = _lines(rows, "start", knobs)
    if "sogclr" in lines:
        lines["fixed τ, no memory"] = lines.pop("sogclr")
    for part, title in WITHOUT_MEMORY.items():
        found = _lines(rows, part, {"isogclr-log": "isogclr_temperature_init"})
        if found:
            lines[title] = found["isogclr-log"]
    _draw_lines(folder, "start", "Where temperatures start", lines, "temperature at the start", logarithmic=True)


def _rho_figure(rows: Rows, folder: Path) -> None:
    knobs = {"isogclr": "isogclr_rho", "isogclr-log": "isogclr_rho"}
    _draw_lines(folder, "rho", "The radius ρ", _lines(rows, "rho", knobs), "ρ")


def _batch_figure(rows: Rows, folder: Path) -> None:
    """The chosen settings themselves, from their trials, stand at the batch that everything else has."""
    frozen = plan.DATA_SETS["emoji-frozen"]
    knobs = dict.fromkeys(("clip", "sogclr", "isogclr", "isogclr-log"), "batch_size")
    lines = _lines(rows, "batch", knobs)
    tuned = select(rows, part="tune", data_set=frozen.name)
    for method, points in lines.items():
        best = max(
            last_value(select(tuned, method=method, setting=setting), "mean_recall")
            for setting in {row["setting"] for row in select(tuned, method=method)}
        )
        points.append((frozen.flags["batch_size"], best))
        points.sort()
    _draw_lines(folder, "batch", "Batch size", lines, "pairs in a batch", logarithmic=True)


def _curve_figure(rows: Rows, folder: Path) -> None:
    """Recall after some epochs, of the seed that was measured so often."""
    found = select(rows, part="compare", data_set="emoji-frozen", metric="mean_recall", seed=str(plan.SEEDS[0]))
    lines = {
        method: sorted((float(row["epoch"]), float(row["value"])) for row in select(found, method=method))
        for method in METHODS
    }
    lines = {method: points for method, points in lines.items() if points}
    _draw_lines(folder, "epochs", "Convergence", lines, "epochs", split="test, one seed")


def _start_distribution(rows: Rows, folder: Path) -> None:
    """Quantiles of the final image temperatures against where they started."""
    lines: dict[str, list[tuple[float, float, float, float]]] = {}
    for part, method, title in (
        ("start", "isogclr", "iSogCLR"),
        ("start", "isogclr-log", "iSogCLR, log τ"),
        *((part, "isogclr-log", title) for part, title in WITHOUT_MEMORY.items()),
    ):
        chosen = select(rows, part=part, method=method)
        ends = [f"image_temperature_q{share}" for share in ("05", "50", "95")]
        lines[title] = sorted(
            (
                _value(setting, "isogclr_temperature_init"),
                *(last_value(select(chosen, setting=setting), end) for end in ends),
            )
            for setting in {row["setting"] for row in chosen}
        )
    lines = {method: points for method, points in lines.items() if points}
    if not lines:
        return

    def paint(panels: Sequence[Any], theme: Theme) -> None:
        for number, (panel, (method, points)) in enumerate(zip(panels, lines.items(), strict=True)):
            starts, low, middle, high = zip(*points, strict=True)
            panel.fill_between(starts, low, high, color=theme.colour(number), alpha=0.25, label="5 % to 95 %")
            panel.plot(starts, middle, marker="o", label="median", color=theme.colour(number))
            panel.plot(starts, starts, color=theme.faint, label="where they started")
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_title(method)
            panel.set_xlabel("temperature at the start")
            panel.set_ylabel("image temperatures at the end")
            panel.legend()

    table = {
        "method": [method for method, points in lines.items() for _ in points],
        **{
            name: [point[place] for points in lines.values() for point in points]
            for place, name in enumerate(("start", "q05", "q50", "q95"))
        },
    }
    _save(folder, "start_distribution", "Where temperatures end", paint, table, panels=len(lines))


def _semantics_figure(rows: Rows, folder: Path) -> None:
    """Rank correlations of all seeds."""
    points = []
    for data_set in plan.DATA_SETS:
        for method in ("isogclr", "isogclr-log"):
            found = select(rows, part="compare", data_set=data_set, method=method)
            for name in COMMONNESS:
                for side in ("image", "text"):
                    metric = f"{side}_temperature_against_{name}"
                    if any(row["metric"] == metric for row in found):
                        label = f"{data_set}, {METHODS[method]}: {name.replace('_', ' ')}"
                        points += [(label, side, value) for value in by_seed(found, metric).values()]
    if not points:
        return
    labels = list(dict.fromkeys(label for label, _, _ in points))

    def paint(panels: Sequence[Any], theme: Theme) -> None:
        panel = panels[0]
        for number, side in enumerate(("image", "text")):
            chosen = [(value, labels.index(label) + 0.2 * number) for label, one, value in points if one == side]
            xs, ys = zip(*chosen, strict=True)
            panel.scatter(xs, ys, color=theme.colour(number), s=14, label=f"{side} τ")
        panel.axvline(0, color=theme.faint)
        panel.set_yticks(range(len(labels)), labels, fontsize=7)
        panel.invert_yaxis()
        panel.set_xlabel("rank correlation of τ with how common a sample is")
        panel.legend()

    table = {
        name: [point[place] for point in points] for place, name in enumerate(("measure", "side", "correlation"))
    }
    height = 1.5 + 0.28 * len(labels)
    frame = Frame("semantics", "Semantics", "", "Semantics", height=height, width=8.0, on_page=False)
    draw(folder, frame, paint, table)
