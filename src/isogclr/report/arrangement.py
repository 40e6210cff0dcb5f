"""How models arrange pictures: t-SNE by class, run beside run, and of the hottest and the coldest pictures.

The paper's figures 3 and 4: what is projected are features of the backbone, which are what training is for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.report.by_class import EXTREME_SHARE
from isogclr.report.canvas import OTHER_CLASSES, Frame, Picture, Theme, draw
from isogclr.report.class_labels import UNLABELLED, Labels
from isogclr.report.detail import MAP_POINTS, Embed, Features, picture_of
from isogclr.report.projection import project
from isogclr.report.run_data import Reader
from isogclr.report.scan import Rows
from isogclr.report.wording import share

_BATCH = 64
_FEWEST_EXTREMES, _MOST_EXTREMES = 24, 600
_TILE = 512
Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Palette:
    """Colours of classes: of as many as can be told apart, those with most points; the others share one."""

    names: tuple[str, ...]
    shown: tuple[int, ...]  # numbers of the classes with a colour
    others: bool  # whether there are more

    def places(self, classes: Numbers) -> list[tuple[str, int | None, npt.NDArray[np.bool_]]]:
        """Name, number of the colour (None: the shared one) and points of each, the shared one first: it lies below."""
        found: list[tuple[str, int | None, npt.NDArray[np.bool_]]] = []
        if self.others:
            found.append(("other classes", None, ~np.isin(classes, self.shown)))
        found += [(self.names[one], place, classes == one) for place, one in enumerate(self.shown)]
        return found


def palette(labels: Labels, classes: Numbers, colours: int) -> Palette:
    """For these points; equally frequent classes in the order of their numbers."""
    used, counts = np.unique(classes[classes != UNLABELLED], return_counts=True)
    most = used[np.argsort(-counts, kind="stable")][:colours]
    others = len(most) < len(used) or bool((classes == UNLABELLED).any())
    return Palette(labels.names, tuple(sorted(most.tolist())), others)


@dataclass(frozen=True)
class Arranged:
    """The same pictures as one run sees them."""

    number: int
    label: str
    points: Features
    same_class: float  # share of the pictures whose nearest neighbour, by cosine, is of their class


def arrange(number: int, label: str, features: Features, classes: Numbers) -> Arranged:
    return Arranged(number, label, project(features), nearest_of_same_class(features, classes))


def nearest_of_same_class(features: Features, classes: Numbers) -> float:
    """Of all that have a class; before the projection, which loses some of it."""
    known = classes != UNLABELLED
    features, classes = features[known], classes[known]
    if len(features) < 2:
        return float("nan")
    hits = 0
    for start in range(0, len(features), _TILE):
        similarity = features[start : start + _TILE] @ features.T
        rows = np.arange(len(similarity))
        similarity[rows, start + rows] = -np.inf
        hits += int((classes[similarity.argmax(axis=1)] == classes[start : start + _TILE]).sum())
    return hits / len(features)


def embed_rows(reader: Reader, embed: Embed, rows: Rows) -> tuple[Rows, Features]:
    """Features of the rows whose pictures can be read, and which these are, in their order."""
    sources = reader.read(rows)
    kept: list[int] = []
    parts: list[Features] = []
    while batch := list(islice(sources, _BATCH)):
        pictures = []
        for source in batch:
            try:
                picture = picture_of(source)
            except ValueError:
                picture = None
            if picture is not None:
                pictures.append(picture)
                kept.append(source.row)
        if pictures:
            parts.append(embed.images(pictures)[0])
    order = np.argsort(kept, kind="stable")
    features = np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)
    return np.array(kept, np.int64)[order], features[order]


def choose_rows(sample: Rows) -> Rows:
    """As many of a random sample as a map shows, ascending."""
    return np.sort(np.random.default_rng(0).permutation(sample)[:MAP_POINTS])


def arrangement_figure(
    arranged: Sequence[Arranged], labels: Labels | None, classes: Numbers, folder: Path
) -> Picture:
    """One panel per run, the same pictures in each, coloured by class: the paper's figure 3."""

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, one in zip(axes, arranged, strict=True):
            if labels is None:
                panel.scatter(*one.points.T, s=9, color=theme.colour(one.number), linewidths=0, rasterized=True)
            else:
                _paint_classes(panel, theme, one.points, classes, palette(labels, classes, len(theme.classes)))
            _bare(panel, one.label)
        if labels is not None:
            axes[-1].legend(loc="best", fontsize=6.5, markerscale=1.4, handletextpad=0.1, labelspacing=0.25)

    table: dict[str, Any] = {"class": _names(labels, classes)} if labels is not None else {}
    for place, one in enumerate(arranged):
        table |= {f"x_{place + 1}": one.points[:, 0], f"y_{place + 1}": one.points[:, 1]}
    measured = "; ".join(f"{one.label} {share(one.same_class)}" for one in arranged)
    frame = Frame(
        "arrangement",
        "How the runs arrange the same pictures",
        f"t-SNE of the backbone's features of {len(classes):,} random pictures, one panel per run"
        + (
            ". By themselves, t-SNE's distances far apart mean little."
            if labels is None
            else f", coloured by class. Pictures whose nearest neighbour is of their class: {measured}."
        ),
        f"Scatter plots of projected features of the same pictures, {', '.join(one.label for one in arranged)}"
        + ("." if labels is None else ", coloured by class."),
        panels=len(arranged),
        height=3.8,
        width=4.0 if len(arranged) > 1 else 4.6,
    )
    return draw(folder, frame, paint, table)


def extremes_of(temperatures: npt.NDArray[np.float64]) -> tuple[Rows, Rows] | None:
    """Places of the hottest and the coldest, as large a part as the paper's; None if there are too few, or alike."""
    count = int(np.clip(round(EXTREME_SHARE * len(temperatures)), _FEWEST_EXTREMES, _MOST_EXTREMES))
    order = np.argsort(-temperatures, kind="stable")
    hot, cold = order[:count], order[-count:]
    if 4 * count > len(order) or temperatures[hot].min() <= temperatures[cold].max():
        return None
    return hot, cold


def extremes_map(
    features: Features,
    temperatures: npt.NDArray[np.float64],
    labels: Labels | None,
    classes: Numbers,
    folder: Path,
) -> Picture | None:
    """The hottest and the coldest embedded pictures: the right half of the paper's figure 4."""
    found = extremes_of(temperatures)
    if found is None:
        return None
    hot, cold = found
    chosen = np.concatenate([hot, cold])
    points, is_hot = project(features[chosen]), np.arange(len(chosen)) < len(hot)
    own = classes[chosen]

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for name, members, colour in (("cold", ~is_hot, theme.cold), ("hot", is_hot, theme.hot)):
            axes[0].scatter(*points[members].T, s=11, color=colour, linewidths=0, alpha=0.8, label=name, rasterized=True)
        _bare(axes[0], "hot and cold")
        axes[0].legend()
        if labels is not None:
            colours = palette(labels, own, len(theme.classes))
            _paint_classes(axes[1], theme, points, own, colours, hollow=~is_hot)
            _bare(axes[1], "by class (hollow: cold)")
            axes[1].legend(fontsize=6.5, markerscale=1.4, handletextpad=0.1, labelspacing=0.25)

    table: dict[str, Any] = {"x": points[:, 0], "y": points[:, 1], "temperature": temperatures[chosen]}
    table["group"] = ["hot" if one else "cold" for one in is_hot]
    if labels is not None:
        table["class"] = _names(labels, own)
    frame = Frame(
        "hot_and_cold",
        "The hottest and the coldest pictures among each other",
        f"t-SNE of the backbone's features of the {len(hot):,} hottest and the {len(cold):,} coldest of "
        f"{len(temperatures):,} embedded pictures. The paper finds hot ones inside clusters, and cold ones apart.",
        "Scatter plot of projected features of the hottest and the coldest pictures.",
        panels=1 if labels is None else 2,
        height=3.8,
    )
    return draw(folder, frame, paint, table)


def _paint_classes(
    panel: Any,
    theme: Theme,
    points: Features,
    classes: Numbers,
    colours: Palette,
    hollow: npt.NDArray[np.bool_] | None = None,
) -> None:
    for name, place, members in colours.places(classes):
        colour = OTHER_CLASSES if place is None else theme.classes[place]
        alpha = 0.35 if place is None else 0.9
        filled = members if hollow is None else members & ~hollow
        style: Mapping[str, Any] = {"s": 12, "alpha": alpha, "rasterized": True}
        shown = _short(name)
        panel.scatter(*points[filled].T, color=colour, linewidths=0, label=shown, **style)
        if hollow is not None:
            panel.scatter(
                *points[members & hollow].T, facecolors="none", edgecolors=colour, linewidths=0.9, **style
            )


def _short(name: str) -> str:
    return (name if len(name) <= 20 else f"{name[:19]}…").replace("$", r"\$")


def _bare(panel: Any, title: str) -> None:
    panel.set(title=title, xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
    panel.grid(visible=False)


def _names(labels: Labels, classes: Numbers) -> list[str]:
    return ["" if one == UNLABELLED else labels.names[one] for one in classes.tolist()]
