"""Figures of what runs logged: loss, recall, temperatures over time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isogclr.report.canvas import Frame, Picture, Theme, draw, logarithmic, percent
from isogclr.report.directions import Directions, together
from isogclr.report.loading import Run

KNN = "knn_top1"  # as it is logged
_RECALL = re.compile(r"(\w+_to_\w+)_R@1")


def label(run: Run, runs: Sequence[Run]) -> str:
    """The name of a run, with what tells it from the others if that is the initial temperature."""
    inits = {other.loss_option("temperature_init") for other in runs if other.has_temperatures}
    tau = run.loss_option("temperature_init")
    return f"{run.name} (τ_init {tau:g})" if len(inits) > 1 and isinstance(tau, (int, float)) else run.name


def loss_figure(runs: Sequence[Run], folder: Path) -> Picture | None:
    """What training minimises, one panel per quantity, and the loss on held-out data if it was logged."""
    found = [
        ("objective", "objective, training", {run.name: _objective(run) for run in runs}),
        ("loss", "loss, training", {run.name: _other_loss(run) for run in runs}),
        (
            "loss",
            "CLIP loss, held-out data",
            {run.name: run.journal.series("val", "clip_val_loss") for run in runs},
        ),
    ]
    panels = [part for part in found if any(len(line[0]) for line in part[2].values())]
    if not panels:
        return None

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, (axis, title, lines) in zip(axes, panels, strict=True):
            for number, run in enumerate(runs):
                epochs, values = lines[run.name]
                if len(epochs):
                    panel.plot(
                        epochs, _smooth(values), label=label(run, runs), **theme.line(number), **_marks(epochs)
                    )
            panel.set(title=title, xlabel="epoch", ylabel=axis)
            panel.legend()

    numbers = {len(run.directions) for run in runs}
    over = "" if numbers == {1} else " over both directions" if numbers == {2} else " over the directions of a run"
    frame = Frame(
        "loss",
        "Loss",
        "What training minimises, smoothed. Of iSogCLR and SogCLR that is the objective, mean of τ(log s + ρ)"
        f"{over}; it has another scale than a cross entropy, and may fall below 0.",
        "Line charts of objective and loss against epoch, one line per run.",
        panels=len(panels),
    )
    return draw(folder, frame, paint, _long_table(runs, panels))


def recalls(run: Run) -> dict[str, str]:
    """What a run has logged of retrieval on held-out data: from image_to_text, say, to its title."""
    found = (_RECALL.fullmatch(name) for name in sorted(run.journal.names("val")))
    return {match[1]: match[1].replace("_to_", " → ") for match in found if match is not None}


def recall_figure(runs: Sequence[Run], folder: Path) -> Picture | None:
    """Retrieval on held-out pairs over epochs: R@1 in full, R@5 and R@10 thin."""
    present = {name: title for run in runs for name, title in recalls(run).items()}
    if not present:
        return None
    longest = max((run for run in runs if recalls(run)), key=lambda run: run.journal.last("val", "epoch") or 0)

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, (direction, title) in zip(axes, present.items(), strict=True):
            for number, run in enumerate(runs):
                for k, width in ((1, 2.2), (5, 1.2), (10, 0.7)):
                    epochs, values = run.journal.series("val", f"{direction}_R@{k}")
                    if len(epochs):
                        style = theme.line(number) | {"linewidth": width} | _marks(epochs)
                        panel.plot(epochs, values, label=label(run, runs) if k == 1 else None, **style)
                        if run is longest:
                            end = (epochs[-1], values[-1])
                            panel.annotate(f"R@{k}", end, (4, -3), textcoords="offset points", fontsize=7)
            panel.set(title=title, xlabel="epoch", ylabel="recall", ylim=(0, None))
            percent(panel.yaxis)
            panel.legend(loc="upper left")
            panel.margins(x=0.08)

    table: dict[str, list[Any]] = {"run": [], "direction": [], "k": [], "epoch": [], "recall": []}
    for run in runs:
        for direction in present:
            for k in (1, 5, 10):
                for epoch, value in zip(*run.journal.series("val", f"{direction}_R@{k}"), strict=True):
                    for name, cell in zip(table, (run.name, direction, k, epoch, value), strict=True):
                        table[name].append(cell)
    frame = Frame(
        "recall",
        "Retrieval on held-out data",
        "Share of queries whose own partner is among the first k found: k = 1 thick, 5 and 10 thinner.",
        "Line charts of recall at 1, 5 and 10 against epoch, one panel per direction, one colour per run.",
        panels=len(present),
    )
    return draw(folder, frame, paint, table)


def accuracy_figure(runs: Sequence[Run], folder: Path) -> Picture | None:
    """Accuracy of the nearest neighbours on held-out pictures over epochs."""
    found = {run.name: run.journal.series("val", KNN) for run in runs}
    if not any(len(epochs) for epochs, _ in found.values()):
        return None

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for number, run in enumerate(runs):
            epochs, values = found[run.name]
            if len(epochs):
                axes[0].plot(epochs, values, label=label(run, runs), **theme.line(number), **_marks(epochs))
        axes[0].set(title="nearest neighbours", xlabel="epoch", ylabel="top-1 accuracy", ylim=(0, None))
        percent(axes[0].yaxis)
        axes[0].legend()

    table: dict[str, list[Any]] = {"run": [], "epoch": [], "accuracy": []}
    for run in runs:
        for epoch, value in zip(*found[run.name], strict=True):
            for name, cell in zip(table, (run.name, epoch, value), strict=True):
                table[name].append(cell)
    frame = Frame(
        "accuracy",
        "Classes of held-out pictures",
        "Share of held-out pictures whose class is found by a vote of their nearest training pictures in the "
        "backbone's features; nothing is trained for it.",
        "Line chart of the accuracy of nearest neighbours against epoch, one line per run.",
    )
    return draw(folder, frame, paint, table)


def temperature_curves(runs: Sequence[Run], folder: Path) -> Picture | None:
    """Mean and spread of the temperatures of the samples in each logged batch."""
    logged = {run.name: _logged(run) for run in runs}
    shown = [run for run in runs if logged[run.name]]
    if not shown:
        return None
    sides = together(logged[run.name] for run in shown)
    table: dict[str, list[Any]] = {name: [] for name in ("run", "side", "epoch", "mean", "q05", "q50", "q95")}
    for run in shown:
        for side in logged[run.name]:
            columns = [run.journal.series("train", f"{side}.temperature.{name}") for name in ("mean", *_QUANTILES)]
            for position in range(min(len(epochs) for epochs, _ in columns)):
                cells = (run.name, side, columns[0][0][position], *(values[position] for _, values in columns))
                for name, cell in zip(table, cells, strict=True):
                    table[name].append(cell)

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, side in zip(axes, sides, strict=True):
            for run in (run for run in shown if side in logged[run.name]):
                _paint_band(panel, theme, runs.index(run), run, side, label(run, runs))
            values = np.array(table["q05"] + table["q95"], np.float64)
            values = values[np.isfinite(values) & (values > 0)]
            if len(values):
                logarithmic(panel.yaxis, values.min() / 1.1, values.max() * 1.1)
            panel.set(title=f"{side} temperatures", xlabel="epoch", ylabel="τ")
            panel.legend()

    frame = Frame(
        "temperature_curves",
        "Temperatures while training",
        "Mean over the samples of a batch; the band holds 90 % of them.",
        "Line charts of the mean temperature against epoch with a band from the 5th to the 95th percentile.",
        panels=len(sides),
    )
    return draw(folder, frame, paint, table)


_QUANTILES = ("q05", "q50", "q95")


def _logged(run: Run) -> Directions:
    """The directions whose temperatures stand in the log."""
    names = run.journal.names("train")
    return tuple(side for side in run.directions if f"{side}.temperature.mean" in names)


def _paint_band(panel: Any, theme: Theme, number: int, run: Run, side: str, name: str) -> None:
    epochs, mean = run.journal.series("train", f"{side}.temperature.mean")
    panel.plot(epochs, mean, label=name, **theme.line(number))
    low_epochs, low = run.journal.series("train", f"{side}.temperature.q05")
    high_epochs, high = run.journal.series("train", f"{side}.temperature.q95")
    if len(low_epochs) == len(high_epochs):
        panel.fill_between(low_epochs, low, high, color=theme.colour(number), alpha=0.18, linewidth=0)


def _objective(run: Run) -> tuple[Any, Any]:
    return run.journal.series("train", "objective")


def _other_loss(run: Run) -> tuple[Any, Any]:
    """Of losses without an objective of their own; the surrogate of those with one is no curve to look at."""
    name = "loss" if "objective" not in run.journal.names("train") else "no such quantity"
    return run.journal.series("train", name)


def _smooth(values: Any) -> Any:
    """A running mean over a fiftieth of the line; gaps stay gaps."""
    width = max(1, len(values) // 50)
    if width == 1:
        return values
    good = np.isfinite(values)
    kernel = np.ones(width)
    total = np.convolve(np.where(good, values, 0.0), kernel, "same")
    count = np.convolve(good.astype(float), kernel, "same")
    return np.where(good, total / np.maximum(count, 1), np.nan)


def _marks(epochs: Any) -> dict[str, Any]:
    return {"marker": "o", "markersize": 3} if len(epochs) <= 20 else {}


def _long_table(runs: Sequence[Run], panels: Sequence[tuple[str, str, Any]]) -> dict[str, list[Any]]:
    table: dict[str, list[Any]] = {"run": [], "quantity": [], "epoch": [], "value": []}
    for _, title, lines in panels:
        for run in runs:
            for epoch, value in zip(*lines[run.name], strict=True):
                for name, cell in zip(table, (run.name, title, epoch, value), strict=True):
                    table[name].append(cell)
    return table
