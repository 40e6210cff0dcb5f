"""Figures of temperatures by class and by class size, over all samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.report.by_class import EXTREME_SHARE, ByClass, ClassColumn, Counts
from isogclr.report.canvas import Frame, Picture, Theme, draw, logarithmic, percent
from isogclr.report.class_colours import plain_name
from isogclr.report.wording import share

NAMED_CLASSES = 24  # more names than that do not fit below an axis
_SINGLE_CLASSES = 100  # of more, those that follow each other are taken together
_GROUPS = 50
_NAME_CHARACTERS = 18
_OF_SIZES = (
    " Dashed, right axis: pictures of the class. The paper expects small classes among the cold ones, unless their "
    "semantics are those of a large class."
)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ClassRun:
    """A run in the figures: its number gives the colour."""

    number: int
    label: str
    classes: ByClass
    column: ClassColumn


def class_figure(runs: Sequence[ClassRun], folder: Path, name: str) -> Picture:
    """Quartiles of each class, and the median against the size of the class if sizes differ. One set of classes."""
    order = _order(runs)
    by_size = [run for run in runs if not run.classes.is_balanced]
    quartiles = {run.number: [run.column.quantiles(part) for part in (0.25, 0.5, 0.75)] for run in runs}
    low, high = _limits([line for lines in quartiles.values() for line in lines])

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for position, run in enumerate(runs):
            if len(order) <= _SINGLE_CLASSES:
                lines = [line[order] for line in quartiles[run.number]]
                _paint_dots(axes[0], theme, run, lines, 0.16 * (position - (len(runs) - 1) / 2))
            else:
                _paint_band(axes[0], theme, run, order)
        _name_classes(axes[0], runs[0].classes.names, order)
        for run in by_size:
            _paint_sizes(axes[1], theme, run, quartiles[run.number][1])
        for panel in axes:
            logarithmic(panel.yaxis, low, high)
            panel.legend()
        axes[0].set(title="by class", ylabel="τ", xlabel=_order_axis(len(order), bool(by_size)))
        if by_size:
            largest, smallest = _size_limits(by_size)
            logarithmic(axes[1].xaxis, smallest / 1.3, largest * 1.3)
            axes[1].set(title="by class size", ylabel="median τ of a class", xlabel="pictures of the class")

    wording = "The dot is the median of a class, the line its quartiles"
    if len(order) > _SINGLE_CLASSES:
        together = _width(len(order))
        wording = f"Median and quartiles of {together} classes together, of those that follow each other"
    caption = f"{wording}; classes are ordered by {'size, the largest first' if by_size else 'their median'}."
    if by_size:
        caption += " Right: one dot per class; the line is the median of equally many classes each."
    frame = Frame(
        name,
        "Temperatures by class" + (" and by class size" if by_size else ""),
        caption + " All visited pictures count.",
        "Temperatures of each class: median and quartiles"
        + (", and scatter plot of the median of a class against its size." if by_size else "."),
        panels=2 if by_size else 1,
        height=3.6 if len(order) <= NAMED_CLASSES else 3.0,
    )
    return draw(folder, frame, paint, class_columns(runs))


def extremes_figure(runs: Sequence[ClassRun], folder: Path, name: str) -> Picture | None:
    """Which classes the hottest and the coldest pictures are of, as in the paper's figure 5; one panel per run."""
    found = {run.number: run.column.extremes() for run in runs}
    shown = [run for run in runs if found[run.number] is not None]
    if not shown:
        return None
    order = _order(runs)
    width = _width(len(order))
    uneven = not all(run.classes.is_balanced for run in runs)

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, run in zip(axes, shown, strict=True):
            groups = found[run.number]
            assert groups is not None
            _paint_extremes(panel, theme, run, groups, order, width)
            panel.set(title=run.label if len(shown) > 1 else "hot above, cold below")
            _name_classes(panel, run.classes.names, order)
            panel.set_xlabel(_order_axis(len(order), uneven))

    together = "" if width == 1 else f" Each bar stands for {width} classes that follow each other."
    frame = Frame(
        name,
        "Classes of the hottest and the coldest pictures",
        f"Red, upwards: the share of a class that is among the hottest {share(EXTREME_SHARE, 2)} of all pictures; "
        f"blue, downwards: among the coldest. Dotted: if every class had the same share.{together}"
        + (_OF_SIZES if uneven else ""),
        "Bars of the share of each class among the hottest and among the coldest pictures.",
        panels=len(shown),
        height=3.6 if len(order) <= NAMED_CLASSES else 3.0,
    )
    columns: dict[str, list[Any]] = {key: [] for key in ("run", "class", "pictures", "hottest", "coldest")}
    for run in shown:
        groups = found[run.number]
        assert groups is not None
        for place in run.classes.present.tolist():
            cells = (
                run.label,
                run.classes.names[place],
                run.classes.sizes[place],
                *(int(g[place]) for g in groups),
            )
            for key, cell in zip(columns, cells, strict=True):
                columns[key].append(cell)
    return draw(folder, frame, paint, columns)


def class_columns(runs: Sequence[ClassRun]) -> dict[str, list[Any]]:
    """Every class of every run, for the file of the figure."""
    names = ("run", "class", "pictures", "mean", "deviation", "q25", "median", "q75", "hottest", "coldest")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for run in runs:
        column, numbers = run.column, run.column.numbers
        values = [column.means, column.deviations, *(column.quantiles(part) for part in (0.25, 0.5, 0.75))]
        groups = column.extremes() or (np.full(len(column.counts), np.nan),) * 2
        for place in run.classes.present.tolist():
            columns["run"].append(run.label)
            columns["class"].append(run.classes.names[place])
            columns["pictures"].append(int(run.classes.sizes[place]))
            for name, line in zip(names[3:8], values, strict=True):
                columns[name].append(float(line[place]))
            for name, group in zip(names[8:], groups, strict=True):
                columns[name].append(group[place] / max(1, numbers[place]))
    return columns


def _order(runs: Sequence[ClassRun]) -> Counts:
    """Classes from left to right: the largest first; where sizes hardly differ, the hottest of the first run."""
    uneven = next((run for run in runs if not run.classes.is_balanced), None)
    if uneven is not None:
        sizes = uneven.classes.sizes
        return np.array([place for place in np.argsort(-sizes, kind="stable") if _in_any(runs, place)], np.int64)
    medians = runs[0].column.quantiles(0.5)
    order = np.argsort(-np.where(np.isnan(medians), -np.inf, medians), kind="stable")
    return np.array([place for place in order if _in_any(runs, place)], np.int64)


def _in_any(runs: Sequence[ClassRun], place: int) -> bool:
    return any(run.classes.sizes[place] for run in runs)


def _order_axis(number: int, by_size: bool) -> str:
    if number <= NAMED_CLASSES:
        return ""
    return f"{number:,} classes, {'the largest first' if by_size else 'the hottest first'}"


def _paint_dots(panel: Any, theme: Theme, run: ClassRun, lines: Sequence[Floats], shift: float) -> None:
    places = np.arange(len(lines[0])) + shift
    colour = theme.colour(run.number)
    large = len(places) <= NAMED_CLASSES
    panel.vlines(places, lines[0], lines[2], color=colour, linewidth=2.2 if large else 1.0, alpha=0.55)
    panel.plot(places, lines[1], "o", color=colour, markersize=4.5 if large else 2.2, label=run.label)


def _paint_band(panel: Any, theme: Theme, run: ClassRun, order: Counts) -> None:
    width = _width(len(order))
    groups = [order[start : start + width] for start in range(0, len(order), width)]
    columns = [run.column.together(group.tolist()) for group in groups]
    low, middle, high = (np.array([column.quantiles(part)[0] for column in columns]) for part in (0.25, 0.5, 0.75))
    places = np.arange(len(groups)) * width + (width - 1) / 2
    panel.fill_between(places, low, high, color=theme.colour(run.number), alpha=0.2, linewidth=0)
    panel.plot(places, middle, label=run.label, **theme.line(run.number))


def _width(classes: int) -> int:
    """How many classes are taken together."""
    return -(-classes // _GROUPS) if classes > _SINGLE_CLASSES else 1


def _paint_sizes(panel: Any, theme: Theme, run: ClassRun, medians: Floats) -> None:
    present = run.classes.present[::-1]  # the smallest first
    sizes, values = run.classes.sizes[present], medians[present]
    style = {"s": 16 if len(present) < 200 else 6, "alpha": 0.55, "linewidths": 0}
    panel.scatter(sizes, values, color=theme.colour(run.number), rasterized=len(present) > 500, **style)
    parts = [
        part for part in np.array_split(np.arange(len(present)), min(10, max(1, len(present) // 3))) if len(part)
    ]
    middles = [np.exp(np.log(sizes[part]).mean()) for part in parts]
    trend = [np.nanmedian(values[part]) if np.isfinite(values[part]).any() else np.nan for part in parts]
    panel.plot(middles, trend, label=run.label, marker="o", markersize=3, **theme.line(run.number))


def _paint_extremes(
    panel: Any, theme: Theme, run: ClassRun, groups: tuple[Counts, Counts], order: Counts, width: int
) -> None:
    starts = np.arange(0, len(order), width)
    numbers = np.add.reduceat(run.column.numbers[order], starts)
    places = starts + (np.minimum(starts + width, len(order)) - starts - 1) / 2
    highest = 0.0
    for group, sign, colour in zip(groups, (1, -1), (theme.hot, theme.cold), strict=True):
        shares = np.add.reduceat(group[order], starts) / np.maximum(1, numbers)
        highest = max(highest, float(shares.max()))
        panel.bar(places, sign * shares, width * 0.85, color=colour, linewidth=0)
        everywhere = sign * group.sum() / max(1, run.column.numbers.sum())
        panel.axhline(everywhere, color=theme.ink, linewidth=0.8, linestyle=":")
    panel.axhline(0, color=theme.ink, linewidth=0.6)
    panel.set_ylim(-1.1 * highest, 1.1 * highest)
    percent(panel.yaxis, signed=False)
    panel.set_ylabel("share of the class")
    if not run.classes.is_balanced:
        _paint_size_line(panel, theme, run.classes.sizes[order])


def _paint_size_line(panel: Any, theme: Theme, sizes: Counts) -> None:
    other = panel.twinx()
    other.grid(visible=False)
    other.plot(
        np.arange(len(sizes)), np.where(sizes > 0, sizes, np.nan), color=theme.ink, linewidth=1.1, linestyle="--"
    )
    used = sizes[sizes > 0]
    logarithmic(other.yaxis, used.min() / 1.5, used.max() * 1.5)
    other.set_ylabel("pictures of the class")


def _name_classes(panel: Any, names: Sequence[str], order: Counts) -> None:
    if len(order) > NAMED_CLASSES:
        panel.set_xlim(-0.5, len(order) - 0.5)
        return
    shown = [plain_name(names[place], _NAME_CHARACTERS) for place in order.tolist()]
    panel.set_xticks(range(len(order)), shown, rotation=50, ha="right", rotation_mode="anchor")
    panel.set_xlim(-0.7, len(order) - 0.3)


def _limits(lines: Sequence[Floats]) -> tuple[float, float]:
    values = np.concatenate(lines)
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.01, 0.1
    room = max((values.max() / values.min()) ** 0.06, 1.03)
    return float(values.min() / room), float(values.max() * room)


def _size_limits(runs: Sequence[ClassRun]) -> tuple[float, float]:
    used = np.concatenate([run.classes.sizes[run.classes.present] for run in runs])
    return float(used.max()), float(used.min())
