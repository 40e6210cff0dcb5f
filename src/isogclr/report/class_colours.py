"""Colours of classes on a map: of as many as can be told apart; the others share one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.report.canvas import OTHER_CLASSES, Theme
from isogclr.report.row_classes import UNLABELLED, Labels

Numbers = npt.NDArray[np.int32]
Members = npt.NDArray[np.bool_]
_NAME_CHARACTERS = 20


@dataclass(frozen=True)
class Palette:
    """Which classes have a colour of their own.

    Args:
        names: of all classes.
        shown: numbers of those with a colour.
        others: whether there are more.
    """

    names: tuple[str, ...]
    shown: tuple[int, ...]
    others: bool

    def groups(self, classes: Numbers, theme: Theme) -> list[tuple[str, str, Members]]:
        """Name, colour and points of each; those that share one last."""
        coloured = zip(self.shown, theme.classes, strict=False)
        found = [(self.names[one], colour, classes == one) for one, colour in coloured]
        if self.others:
            found.append(("other classes", OTHER_CLASSES, ~np.isin(classes, self.shown)))
        return found


def palette(labels: Labels, classes: Numbers, theme: Theme) -> Palette:
    """For these points: the most frequent of their classes have colours."""
    used, counts = np.unique(classes[classes != UNLABELLED], return_counts=True)
    most = used[np.argsort(-counts, kind="stable")][: len(theme.classes)]
    others = len(most) < len(used) or bool((classes == UNLABELLED).any())
    return Palette(labels.names, tuple(sorted(most.tolist())), others)


def paint_classes(
    panel: Any, theme: Theme, points: Any, labels: Labels, classes: Numbers, hollow: Members | None = None
) -> None:
    """Points [N, 2] in the colours of their classes, with a legend; `hollow` ones as rings."""
    for name, colour, members in palette(labels, classes, theme).groups(classes, theme):
        below = colour == OTHER_CLASSES
        style: Mapping[str, Any] = {
            "s": 12,
            "alpha": 0.35 if below else 0.9,
            "zorder": 1 if below else 2,
            "rasterized": True,
        }
        filled = members if hollow is None else members & ~hollow
        panel.scatter(*points[filled].T, color=colour, linewidths=0, label=plain_name(name), **style)
        if hollow is not None:
            ring = {"facecolors": "none", "edgecolors": colour, "linewidths": 0.9}
            panel.scatter(*points[members & hollow].T, **ring, **style)
    panel.legend(fontsize=6.5, markerscale=1.4, handletextpad=0.1, labelspacing=0.25)


def plain_name(name: str, characters: int = _NAME_CHARACTERS) -> str:
    """Short, and without what matplotlib would take for a formula."""
    short = name if len(name) <= characters else f"{name[: characters - 1]}…"
    return short.replace("$", r"\$").lstrip("_")  # a legend leaves out what begins with an underscore


def class_names(labels: Labels, classes: Numbers) -> list[str]:
    """Nothing for a sample without a class."""
    return ["" if one == UNLABELLED else labels.names[one] for one in classes.tolist()]
