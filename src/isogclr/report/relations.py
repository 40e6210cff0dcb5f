"""Figures that set temperatures of single samples beside what the samples are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.report.canvas import Frame, Picture, Theme, colour_bar, draw, heat_norm, logarithmic, percent
from isogclr.report.class_colours import Numbers, class_names, paint_classes
from isogclr.report.commonness import NEIGHBOURS, binned_quantiles, rank_correlation
from isogclr.report.directions import listed
from isogclr.report.row_classes import Labels

Floats = npt.NDArray[np.float64]
_SHOWN = 3000  # points in a scatter plot


@dataclass(frozen=True)
class Measure:
    """Something that is known of each embedded sample, by side; `logarithmic` shares are drawn as per cent."""

    name: str
    title: str
    axis: str
    values: Mapping[str, Floats]
    logarithmic: bool


def measures(neighbours: Mapping[str, Floats], words: Floats | None) -> list[Measure]:
    """Of how common samples are; `words` is None if they have no captions."""
    axis = f"mean cosine similarity to the {NEIGHBOURS} nearest samples"
    found = [Measure("neighbours", "Temperature and neighbours in the embedding", axis, neighbours, False)]
    if words is not None:
        found.append(
            Measure(
                "words",
                "Temperature and words of the caption",
                "share of captions that hold its words (geometric mean)",
                dict.fromkeys(neighbours, words),
                True,
            )
        )
    return found


def relation_figure(
    measure: Measure, temperatures: Mapping[str, Floats], folder: Path, name: str
) -> tuple[Picture, dict[str, float]]:
    """Scatter plot of temperature against how common a sample is, with quartiles; and Spearman's ρ by side."""
    found = {side: rank_correlation(measure.values[side], temperatures[side]) for side in temperatures}
    number = len(next(iter(temperatures.values())))

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, side in zip(axes, temperatures, strict=True):
            _paint_relation(panel, theme, measure.values[side], temperatures[side])
            panel.set(title=f"{side}: rank correlation {found[side]:+.2f}", ylabel=f"{side} τ")
            panel.set_xlabel(measure.axis)
            if measure.logarithmic:
                values = measure.values[side][np.isfinite(measure.values[side])]
                if len(values):
                    logarithmic(panel.xaxis, values.min() / 1.2, values.max() * 1.2)
                    percent(panel.xaxis)

    table = {
        f"{side}_{what}": values
        for side in temperatures
        for what, values in (("measure", measure.values[side]), ("temperature", temperatures[side]))
    }
    frame = Frame(
        f"{name}_{measure.name}",
        measure.title,
        f"{number:,} samples; the line is the median of equally many samples each, the band their quartiles. "
        "Rank correlation is Spearman's; the paper expects common semantics at high temperatures, a positive one.",
        f"{_charts(temperatures)} of temperature against a measure of how common a sample is, "
        f"{listed(f'for {side}s' for side in temperatures)}. "
        f"Spearman correlation: {', '.join(f'{side} {value:+.2f}' for side, value in found.items())}.",
        panels=len(temperatures),
    )
    return draw(folder, frame, paint, table), found


def map_figure(
    points: Mapping[str, Any],
    temperatures: Mapping[str, Floats],
    folder: Path,
    name: str,
    labels: Labels | None = None,
    classes: Numbers | None = None,
) -> Picture:
    """The projection of each direction, a point per sample, coloured by temperature; of the first also by class."""
    first = next(iter(temperatures))

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, side in zip(axes, temperatures, strict=False):
            low, high = heat_range(temperatures[side])
            artist = panel.scatter(
                *points[side].T,
                c=temperatures[side],
                norm=heat_norm(low, high),
                cmap=theme.diverging,
                s=11,
                edgecolors=theme.ink,
                linewidths=0.2,
                rasterized=True,
            )
            panel.set(title=f"{side} embeddings", xticks=[], yticks=[])
            panel.set(xlabel="t-SNE 1", ylabel="t-SNE 2")
            panel.grid(visible=False)
            colour_bar(panel, artist, f"{side} τ", np.geomspace(low, high, 5))
        if labels is not None and classes is not None:
            paint_classes(axes[-1], theme, points[first], labels, classes)
            axes[-1].set(
                title=f"{first} embeddings, by class", xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2"
            )
            axes[-1].grid(visible=False)

    table: dict[str, Any] = {
        f"{side}_{what}": values
        for side in temperatures
        for what, values in (
            ("x", points[side][:, 0]),
            ("y", points[side][:, 1]),
            ("temperature", temperatures[side]),
        )
    }
    if labels is not None and classes is not None:
        table["class"] = class_names(labels, classes)
    number = len(next(iter(temperatures.values())))
    by_class = "" if labels is None else " and by class"
    frame = Frame(
        f"{name}_map",
        f"Embeddings, coloured by temperature{by_class}",
        f"t-SNE of {number:,} random samples. Neighbours are alike to the model; distances far "
        "apart mean little. Blue is cold (small τ), red is hot (large τ).",
        f"{_charts(temperatures)} of projected embeddings, {listed(f'of {side}s' for side in temperatures)}, "
        f"coloured by temperature{by_class}.",
        panels=len(temperatures) + (labels is not None),
        height=4.0,
        width=5.0,
        on_page=False,
    )
    return draw(folder, frame, paint, table)


def _charts(panels: Sized) -> str:
    return "Scatter plots" if len(panels) > 1 else "Scatter plot"


def heat_range(values: Floats) -> tuple[float, float]:
    """Limits of the colours: outliers do not wash out the rest."""
    finite = values[np.isfinite(values) & (values > 0)]
    if not len(finite):
        return 0.01, 0.1
    low, high = (float(value) for value in np.quantile(finite, (0.02, 0.98)))
    return (low, high) if high > low * 1.01 else (low / 1.05, high * 1.05)


def _paint_relation(panel: Any, theme: Theme, places: Floats, values: Floats) -> None:
    shown = np.linspace(0, len(values) - 1, min(_SHOWN, len(values))).astype(int)
    panel.scatter(
        places[shown], values[shown], s=5, alpha=0.35, color=theme.colour(0), linewidths=0, rasterized=True
    )
    centres, quartiles = binned_quantiles(places, values)
    if len(centres) > 1:
        panel.fill_between(
            centres, quartiles[:, 0], quartiles[:, 2], color=theme.colour(1), alpha=0.25, linewidth=0
        )
        panel.plot(centres, quartiles[:, 1], color=theme.colour(1), marker="o", markersize=3)
    finite = values[np.isfinite(values) & (values > 0)]
    if len(finite):
        low, high = np.quantile(finite, (0.002, 0.998))
        logarithmic(panel.yaxis, low / 1.1, high * 1.1)
