"""How models arrange pictures: t-SNE by class, run beside run, and of the hottest and the coldest pictures.

The paper's figures 4 and 5. What is projected are features of the backbone: they are what such a training is for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.report.by_class import EXTREME_SHARE
from isogclr.report.canvas import Frame, Picture, Theme, draw
from isogclr.report.class_colours import Numbers, class_names, paint_classes
from isogclr.report.detail import MAP_POINTS, Embed, Features, picture_of
from isogclr.report.projection import project
from isogclr.report.row_classes import UNLABELLED, Labels
from isogclr.report.run_data import Reader
from isogclr.report.scan import Rows
from isogclr.report.wording import share

_BATCH = 64
_FEWEST_EXTREMES, _MOST_EXTREMES = 24, 600
_TILE_ROWS = 512


@dataclass(frozen=True)
class Arranged:
    """The same pictures as one run sees them.

    Args:
        number: of the run, which gives the colour.
        points: [N, 2].
        same_class: share of the pictures whose nearest neighbour, by cosine, is of their class.
    """

    number: int
    label: str
    points: Features
    same_class: float


def arrange(number: int, label: str, features: Features, classes: Numbers) -> Arranged:
    """Project the features of a run, [N, D] of unit length; neighbours are counted before that."""
    return Arranged(number, label, project(features), nearest_of_same_class(features, classes))


def nearest_of_same_class(features: Features, classes: Numbers) -> float:
    """Share among all that have a class; NaN of fewer than two."""
    known = classes != UNLABELLED
    features, classes = features[known], classes[known]
    if len(features) < 2:
        return float("nan")
    hits = 0
    for start in range(0, len(features), _TILE_ROWS):
        similarity = features[start : start + _TILE_ROWS] @ features.T
        rows = np.arange(len(similarity))
        similarity[rows, start + rows] = -np.inf
        hits += int((classes[similarity.argmax(axis=1)] == classes[start : start + _TILE_ROWS]).sum())
    return hits / len(features)


def choose_rows(sample: Rows) -> Rows:
    """As many of a random sample as a map shows, ascending."""
    return np.sort(np.random.default_rng(0).permutation(sample)[:MAP_POINTS])


def embed_rows(reader: Reader, embed: Embed, rows: Rows) -> tuple[Rows, Features]:
    """The rows whose pictures can be read, ascending, and the backbone's features of them."""
    sources = reader.read(rows)
    kept: list[int] = []
    parts: list[Features] = []
    while batch := list(islice(sources, _BATCH)):
        pictures = []
        for source in batch:
            try:
                picture = picture_of(source)
            except ValueError:  # said of the run whose samples are shown; on a map nobody misses a point
                continue
            if picture is not None:
                pictures.append(picture)
                kept.append(source.row)
        if pictures:
            parts.append(embed.images(pictures)[0])
    order = np.argsort(kept, kind="stable")
    features = np.concatenate(parts) if parts else np.zeros((0, 1), np.float32)
    return np.array(kept, np.int64)[order], features[order]


def arrangement_figure(
    arranged: Sequence[Arranged], labels: Labels | None, classes: Numbers, folder: Path
) -> Picture:
    """One panel per run, the same pictures in each, coloured by class: the paper's figure 4."""

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for panel, one in zip(axes, arranged, strict=True):
            if labels is None:
                panel.scatter(*one.points.T, s=9, color=theme.colour(one.number), linewidths=0, rasterized=True)
            else:
                paint_classes(panel, theme, one.points, labels, classes)
            _without_ticks(panel, one.label)

    table: dict[str, Any] = {} if labels is None else {"class": class_names(labels, classes)}
    for place, one in enumerate(arranged):
        table |= {f"x_{place + 1}": one.points[:, 0], f"y_{place + 1}": one.points[:, 1]}
    measured = ", ".join(f"{one.label} {share(one.same_class)}" for one in arranged)
    coloured = f", coloured by class. Pictures whose nearest neighbour is of their class: {measured}."
    coloured = "." if labels is None else coloured
    frame = Frame(
        "arrangement",
        "How the runs arrange the same pictures" if len(arranged) > 1 else "How the run arranges pictures",
        f"t-SNE of the backbone's features of {len(classes):,} random pictures{coloured}",
        "Scatter plots of projected features of the same pictures, one for each run.",
        panels=len(arranged),
        height=3.8,
    )
    return draw(folder, frame, paint, table)


def extremes_of(temperatures: npt.NDArray[np.float64]) -> tuple[Rows, Rows] | None:
    """Places of the hottest and the coldest, as large a part as the paper's; None of too few, and of equals."""
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
    """The hottest and the coldest embedded pictures: the right half of the paper's figure 5."""
    found = extremes_of(temperatures)
    if found is None:
        return None
    chosen, is_hot = np.concatenate(found), np.arange(len(found[0]) + len(found[1])) < len(found[0])
    points, own = project(features[chosen]), classes[chosen]

    def paint(axes: Sequence[Any], theme: Theme) -> None:
        for name, members, colour in (("cold", ~is_hot, theme.cold), ("hot", is_hot, theme.hot)):
            style = {"s": 12, "linewidths": 0, "alpha": 0.8, "rasterized": True}
            axes[0].scatter(*points[members].T, color=colour, label=name, **style)
        axes[0].legend()
        _without_ticks(axes[0], "hot and cold")
        if labels is not None:
            paint_classes(axes[1], theme, points, labels, own, hollow=~is_hot)
            _without_ticks(axes[1], "by class; rings are cold")

    table: dict[str, Any] = {"x": points[:, 0], "y": points[:, 1], "temperature": temperatures[chosen]}
    table["group"] = ["hot" if one else "cold" for one in is_hot.tolist()]
    if labels is not None:
        table["class"] = class_names(labels, own)
    frame = Frame(
        "hot_and_cold",
        "The hottest and the coldest pictures among each other",
        f"t-SNE of the backbone's features of the {len(found[0]):,} hottest and the {len(found[1]):,} coldest of "
        f"{len(temperatures):,} embedded pictures. The paper finds hot ones inside clusters, and cold ones apart.",
        "Scatter plots of projected features of the hottest and the coldest pictures.",
        panels=1 if labels is None else 2,
        height=3.8,
    )
    return draw(folder, frame, paint, table)


def _without_ticks(panel: Any, title: str) -> None:
    panel.set(title=title, xticks=[], yticks=[], xlabel="t-SNE 1", ylabel="t-SNE 2")
    panel.grid(visible=False)
