"""Figures of temperatures over all samples: how they spread epoch by epoch, and where they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.report.canvas import Frame, Picture, Theme, draw, logarithmic, percent
from isogclr.report.curves import label
from isogclr.report.directions import listed, temperature_column, together
from isogclr.report.loading import Run
from isogclr.report.scan import Column, Scan, edges

_RIDGES = 9  # epochs shown one above the other
_BINS_SHOWN = 70
Floats = npt.NDArray[np.float64]


def ridge_figure(run: Run, number: int, folder: Path, name: str) -> Picture | None:
    """Distributions at the end of epochs, one ridge each; needs what training logged of them."""
    found = {side: _logged(run, f"{side}.temperature") for side in run.directions}
    if not all(found.values()):
        return None
    low, high = _range([(line["edges"], line["counts"]) for lines in found.values() for line in lines])

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, (side, lines) in zip(axes, found.items(), strict=True):
            shown = _spread(lines, _RIDGES)
            for height, line in enumerate(shown):
                _paint_ridge(panel, line, height, theme.colour(number), theme)
            panel.set_yticks(range(len(shown)), [f"{line['epoch']:g}" for line in shown])
            panel.set(title=f"{side} temperatures", xlabel="τ", ylabel="after epoch")
            logarithmic(panel.xaxis, low, high)
            _mark_start(panel, run, theme)

    table = _ridge_table(found)
    frame = Frame(
        name,
        "Temperatures of all samples, epoch by epoch",
        "Each ridge is the distribution over all visited samples at the end of an epoch, scaled to one height; "
        "the dotted line is τ_init, where every sample starts.",
        "Ridge plots of the distribution of temperatures on a logarithmic axis, one ridge per epoch.",
        panels=len(found),
        height=3.6,
    )
    return draw(folder, frame, paint, table)


def final_figure(runs: Sequence[Run], scans: Mapping[str, Scan], folder: Path) -> Picture | None:
    """Distributions in the newest store of each run, one colour per run."""
    shown = [run for run in runs if run.name in scans and scans[run.name].columns]
    if not shown:
        return None
    sides = together(run.directions for run in shown)
    histograms = {
        (run.name, side): (edges(), scans[run.name].columns[temperature_column(side)].counts)
        for run in shown
        for side in run.directions
    }
    low, high = _range(list(histograms.values()))

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, side in zip(axes, sides, strict=True):
            for run in (run for run in shown if side in run.directions):
                number = runs.index(run)
                bins, counts = _coarse(*histograms[run.name, side], low, high)
                share = counts / max(1, counts.sum())
                panel.stairs(share, bins, label=label(run, runs), linewidth=1.6, **_stairs(theme, number))
                panel.stairs(share, bins, fill=True, color=theme.colour(number), alpha=0.16)
                column = scans[run.name].columns[temperature_column(side)]
                panel.axvline(column.quantile(0.5), color=theme.colour(number), linewidth=0.9, linestyle=":")
            logarithmic(panel.xaxis, low, high)
            percent(panel.yaxis)
            panel.set(title=f"{side} temperatures", xlabel="τ", ylabel="share of samples", ylim=(0, None))
            panel.legend()

    columns: dict[str, list[Any]] = {name: [] for name in ("run", "side", "from", "to", "samples")}
    for (run_name, side), (bins, counts) in histograms.items():
        for position in np.flatnonzero(counts):
            cells = (run_name, side, bins[position], bins[position + 1], int(counts[position]))
            for name, cell in zip(columns, cells, strict=True):
                columns[name].append(cell)
    frame = Frame(
        "final_temperatures",
        "Where temperatures end" + (", by initial temperature" if _inits(shown) > 1 else ""),
        "All visited samples of the newest store of each run; dotted: the median.",
        "Histograms of temperatures of all samples on a logarithmic axis, one colour per run.",
        panels=len(sides),
    )
    return draw(folder, frame, paint, columns)


def health_figure(runs: Sequence[Run], scans: Mapping[str, Scan], folder: Path) -> Picture | None:
    """How often samples were visited, and the share of each logged batch at a bound."""
    visited = [run for run in runs if run.name in scans and scans[run.name].visited]
    bounded = [run for run in runs if _at_bound(run, "minimum") is not None]
    panels = [("visits", visited)] if visited else []
    panels += [("bounds", bounded)] if bounded else []
    if not panels:
        return None

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, (what, shown) in zip(axes, panels, strict=True):
            for run in shown:
                if what == "visits":
                    _paint_visits(panel, theme, runs, run, scans[run.name])
                else:
                    _paint_bounds(panel, theme, runs, run)
            panel.legend()

    columns: dict[str, list[Any]] = {name: [] for name in ("run", "visits", "samples")}
    for run in visited:
        counts = scans[run.name].visits
        for visits in np.flatnonzero(counts):
            for name, cell in zip(columns, (run.name, int(visits), int(counts[visits])), strict=True):
                columns[name].append(cell)
    frame = Frame(
        "health",
        "Visits and bounds",
        "Left: how often samples were visited. Right: share of a batch whose temperature is at a bound"
        f"{_sides_together(bounded)}; a share that grows says that the bound decides, not the data.",
        "Histogram of visits of samples, and line chart of the share of samples at the bounds against epoch.",
        panels=len(panels),
    )
    return draw(folder, frame, paint, columns)


def _paint_visits(panel: Any, theme: Theme, runs: Sequence[Run], run: Run, scan: Scan) -> None:
    used = np.flatnonzero(scan.visits)
    low, high = int(used.min()), int(used.max())
    width = max(1, (high - low) // 40)
    bins = np.arange(low, high + width + 1, width) - 0.5
    counts, _ = np.histogram(np.arange(len(scan.visits)), bins, weights=scan.visits)
    number = runs.index(run)
    panel.stairs(counts / scan.visited, bins, label=label(run, runs), linewidth=1.6, **_stairs(theme, number))
    panel.stairs(counts / scan.visited, bins, fill=True, color=theme.colour(number), alpha=0.16)
    percent(panel.yaxis)
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.set(title="visits", xlabel="visits of a sample", ylabel="share of visited samples", ylim=(0, None))


def _paint_bounds(panel: Any, theme: Theme, runs: Sequence[Run], run: Run) -> None:
    number = runs.index(run)
    for bound, style in (("minimum", "-"), ("maximum", ":")):
        found = _at_bound(run, bound)
        if found is not None:
            name = f"{label(run, runs)}: at the {bound}"
            panel.plot(*found, style, label=name, color=theme.colour(number), linewidth=1.3)
    percent(panel.yaxis)
    panel.set(title="at a bound", xlabel="epoch", ylabel="share of a batch", ylim=(0, None))


def _at_bound(run: Run, bound: str) -> tuple[Floats, Floats] | None:
    """Epochs, and the share of a batch at a bound, as the mean over the directions of a run; None if not logged."""
    lines = [run.journal.series("train", f"{side}.temperature.at_{bound}") for side in run.directions]
    if len({len(epochs) for epochs, _ in lines}) != 1 or not len(lines[0][0]):
        return None
    return lines[0][0], np.mean([share for _, share in lines], axis=0)


def _sides_together(runs: Sequence[Run]) -> str:
    """Which directions a share is the mean of, if of several."""
    several = {run.directions for run in runs if len(run.directions) > 1}
    if not several:
        return ""
    return f", {listed(several.pop())} together" if len(several) == 1 else ", all directions together"


def _logged(run: Run, column: str) -> list[dict[str, Any]]:
    """Distributions that are what they should be."""
    found = []
    for line in run.journal.of("distribution"):
        if line.get("column") != column:
            continue
        try:
            bins, counts = np.asarray(line["edges"], np.float64), np.asarray(line["counts"], np.float64)
            epoch = float(line["epoch"])
        except (KeyError, TypeError, ValueError):
            continue
        if bins.ndim == 1 and len(bins) == len(counts) + 1 > 1 and counts.sum() > 0 and bins[0] > 0:
            found.append({"epoch": epoch, "edges": bins, "counts": counts})
    return found


def _spread(lines: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first, the last, and some in between."""
    places = np.unique(np.linspace(0, len(lines) - 1, min(count, len(lines))).round().astype(int))
    return [lines[place] for place in places]


def _density(line: Mapping[str, Any]) -> Floats:
    """Share of samples per unit of log τ."""
    widths = np.diff(np.log(line["edges"]))
    density: Floats = line["counts"] / line["counts"].sum() / widths
    return density


def _paint_ridge(panel: Any, line: Mapping[str, Any], height: int, colour: str, theme: Theme) -> None:
    density = _density(line)
    density = 1.5 * density / density.max()
    bins = np.repeat(line["edges"], 2)[1:-1]
    profile = height + np.repeat(density, 2)
    panel.fill_between(bins, height, profile, color=colour, alpha=0.45, linewidth=0, zorder=100 - height)
    panel.plot(bins, profile, color=theme.ink, linewidth=0.7, zorder=100 - height)


def _mark_start(panel: Any, run: Run, theme: Theme) -> None:
    start = run.loss_option("temperature_init")
    if isinstance(start, (int, float)):
        panel.axvline(start, color=theme.ink, linewidth=0.9, linestyle=":")


def _range(histograms: Sequence[tuple[Any, Any]]) -> tuple[float, float]:
    """Where anything lies, with some room."""
    lows, highs = [], []
    for bins, counts in histograms:
        used = np.flatnonzero(counts)
        if len(used):
            lows.append(float(bins[used[0]]))
            highs.append(float(bins[used[-1] + 1]))
    low, high = min(lows, default=1e-3), max(highs, default=1.0)
    room = max((high / low) ** 0.05, 1.05)
    return low / room, high * room


def _coarse(bins: Floats, counts: Any, low: float, high: float) -> tuple[Floats, Floats]:
    """The same counts in as many bins as a figure can show, by the middles of the fine ones."""
    coarse = np.geomspace(low, high, _BINS_SHOWN + 1)
    middles = np.sqrt(bins[:-1] * bins[1:])
    return coarse, np.histogram(middles, coarse, weights=counts)[0]


def _stairs(theme: Theme, number: int) -> dict[str, Any]:
    return {"color": theme.colour(number)}


def _inits(runs: Sequence[Run]) -> int:
    return len({run.loss_option("temperature_init") for run in runs})


def _ridge_table(found: Mapping[str, list[dict[str, Any]]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {name: [] for name in ("side", "epoch", "from", "to", "samples")}
    for side, lines in found.items():
        for line in lines:
            for position, count in enumerate(line["counts"].tolist()):
                bins = line["edges"]
                cells = (side, line["epoch"], bins[position], bins[position + 1], int(count))
                for name, cell in zip(columns, cells, strict=True):
                    columns[name].append(cell)
    return columns


def summary(column: Column) -> dict[str, float]:
    """The numbers of a column that a table shows."""
    return {
        "mean": column.mean,
        "deviation": column.deviation,
        "median": column.quantile(0.5),
        "q05": column.quantile(0.05),
        "q95": column.quantile(0.95),
    }
