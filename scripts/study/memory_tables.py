"""Tables of the trainings in memory: recall, leads of iSogCLR over the others, rare and frequent words."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import memory_plan
import plan
from analysis import Estimate, Rows, estimate, last_value, select
from grid import DataSet
from markdown_tables import MISSING, chosen_table, lead_of, table

TITLES = {
    "clip": "CLIP",
    "siglip": "SigLIP",
    "cyclip": "CyCLIP",
    "sogclr": "SogCLR",
    "isogclr": "iSogCLR, paper's rule",
    "isogclr-log": "iSogCLR, log τ",
    "isogclr-recommended": "iSogCLR, as it comes",
    "isogclr-paper": "iSogCLR, the authors' recipe",
}
RECALLS = {
    "mean_recall": "mean of six",
    "image_to_text_R@1": "image → text R@1",
    "text_to_image_R@1": "text → image R@1",
}
RIVALS = ("clip", "siglip", "cyclip", "sogclr")
AGE_COLUMNS = (
    "gamma 1",
    "gamma 0.95",
    "gamma 0.8",
    "gamma 0.8, drift",
    "gamma 0.5",
    "gamma 0.5, drift",
    "gamma 0.2",
)
PARTS_OF_A_RUN = {"first fifth": (0.0, 0.2), "up to the middle": (0.2, 0.5), "second half": (0.5, 1.0)}
THIRDS = {
    f"{side}_R@10_{third}": f"{short}, {third}"
    for side, short in (("image_to_text", "i → t R@10"), ("text_to_image", "t → i R@10"))
    for third in ("rare", "middle", "frequent")
}


def memory_tables(rows: Rows) -> list[str]:
    """A table for each data set that was compared."""
    parts = []
    for data_set in plan.DATA_SETS.values():
        found = select(rows, part="compare", data_set=data_set.name)
        if data_set.task in memory_plan.TASKS and found:
            parts += [f"### {data_set.name}", comparison(found, data_set), chosen_table(rows, data_set)]
    tried = [one for one in plan.DATA_SETS.values() if one.task in memory_plan.TASKS]
    parts += ["### Overview", overview(rows, tried)]
    parts += ["### Memory in the trials", memory_in_trials(rows, tried)]
    parts += ["### The knob of one temperature and of all", knob_table(rows, tried)]
    return parts


def overview(rows: Rows, data_sets: Iterable[DataSet]) -> str:
    """A line for each data set: the methods, and the leads of log τ over its rivals."""
    lines = []
    for data_set in data_sets:
        found = select(rows, part="compare", data_set=data_set.name)
        of = {name: select(found, method=name) for name in (*RIVALS, "isogclr-log")}
        ours = of["isogclr-log"]
        if ours:
            means = [str(estimate(one, data_set.metric)) if one else MISSING for one in of.values()]
            leads = [lead_of(ours, of[name], data_set.metric) if of[name] else MISSING for name in RIVALS]
            lines.append([data_set.name, *means, *leads])
    names = [TITLES[name] for name in RIVALS]
    return table(["", *names, "iSogCLR", *(f"lead over {name}" for name in names)], lines)


def age_table(path: Path) -> str:
    """Variance of the error of log s over samples, mean of both sides, by part of the run."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = [*csv.DictReader(stream)]
    lines = []
    for data_set, batch in dict.fromkeys((row["data_set"], row["batch_size"]) for row in rows):
        of_run = select(rows, data_set=data_set, batch_size=batch)
        for part, (start, end) in PARTS_OF_A_RUN.items():
            cells = []
            for memory in AGE_COLUMNS:
                values = [
                    float(row["variance"])
                    for row in select(of_run, memory=memory)
                    if start < int(row["epoch"]) / int(row["epochs"]) <= end
                ]
                cells.append(f"{sum(values) / len(values):.2f}")
            lines.append([f"{data_set}, batch {batch}", part, *cells])
    return table(["", "", *(name.replace("gamma", "γ") for name in AGE_COLUMNS)], lines)


def knob_table(rows: Rows, data_sets: Iterable[DataSet]) -> str:
    """One temperature for all, and one for each, over the knob of either: validation recall."""
    lines = []
    for data_set in data_sets:
        found = select(rows, part="knob", data_set=data_set.name)
        for method, knob in (("sogclr", "sogclr_temperature"), ("isogclr-log", "isogclr_rho")):
            theirs = select(found, method=method)
            scores = {_value_of(knob, setting): setting for setting in {row["setting"] for row in theirs}}
            for value in sorted(scores):
                score = estimate(select(theirs, setting=scores[value]), data_set.metric)
                lines.append([data_set.name, f"{TITLES[method]}, {knob.rpartition('_')[2]} {value:g}", str(score)])
    return table(["", "", "mean of six, validation"], lines)


def _value_of(knob: str, setting: str) -> float:
    (value,) = (word.removeprefix(f"{knob}=") for word in setting.split() if word.startswith(f"{knob}="))
    return float(value)


def estimates_table(path: Path) -> str:
    """Validation recall by where s comes from; a mean with the deviation of a seed."""
    with path.open(newline="", encoding="utf-8") as stream:
        rows = [*csv.DictReader(stream)]
    names = list(dict.fromkeys(row["estimate"] for row in rows))
    lines = []
    for head in dict.fromkeys((row["data_set"], row["pairs"], row["batch_size"], row["epochs"]) for row in rows):
        of_head = select(rows, **dict(zip(("data_set", "pairs", "batch_size", "epochs"), head, strict=True)))
        cells = []
        for name in names:
            values = [float(row["mean_recall"]) for row in select(of_head, estimate=name)]
            cells.append(str(Estimate.of(values)) if values else MISSING)
        lines.append([f"{head[0]}, {head[1]} pairs, batch {head[2]}, {head[3]} epochs", *cells])
    return table(["", *(name.replace("gamma", "γ") for name in names)], lines)


def memory_in_trials(rows: Rows, data_sets: Iterable[DataSet]) -> str:
    """Validation recall with γ 0.8 less that with γ 1, over pairs of trials that differ in nothing else."""
    lines = []
    for data_set in data_sets:
        tuned = select(rows, part="tune", data_set=data_set.name)
        gains = []
        for method in ("sogclr", "isogclr", "isogclr-log"):
            scores = {
                setting: last_value(select(tuned, method=method, setting=setting), data_set.metric)
                for setting in {row["setting"] for row in select(tuned, method=method)}
            }
            gains += [
                score - scores[setting.replace("gamma=0.8", "gamma=1.0")]
                for setting, score in scores.items()
                if "gamma=0.8" in setting and setting.replace("gamma=0.8", "gamma=1.0") in scores
            ]
        if gains:
            better = sum(gain > 0 for gain in gains)
            mean = sum(gains) / len(gains)
            lines.append(
                [
                    data_set.name,
                    f"{better} of {len(gains)}",
                    f"{mean:+.2f}",
                    f"{min(gains):+.2f}",
                    f"{max(gains):+.2f}",
                ]
            )
    return table(["", "γ 0.8 better than γ 1", "mean gain", "least", "most"], lines)


def comparison(rows: Rows, data_set: DataSet) -> str:
    """With the leads of both rules of iSogCLR, paired by seed, and their 95 % intervals."""
    columns = RECALLS | (THIRDS if data_set.task == "icons" else {})
    lines = []
    for name, title in TITLES.items():
        theirs = select(rows, method=name)
        if not theirs:
            continue
        leads = [
            MISSING
            if name == ours or not select(rows, method=ours)
            else lead_of(select(rows, method=ours), theirs, data_set.metric)
            for ours in ("isogclr", "isogclr-log")
        ]
        lines.append([title, *(str(estimate(theirs, metric)) for metric in columns), *leads])
    return table(["", *columns.values(), "lead of the paper's rule", "lead of log τ"], lines)
