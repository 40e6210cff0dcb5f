"""The only module that knows matplotlib: paints a figure for a light and a dark page, with PNG and CSV beside it.

A figure is painted by a function of axes and a theme, so that it can be painted again in other colours. Nothing
global is changed: figures are objects here, never pyplot's.
"""

from __future__ import annotations

import base64
import csv
import io
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import Bbox

from isogclr.spreadsheet import cell

# Okabe and Ito's colours, which people with any colour vision tell apart, in shades that stand out on each page;
# line styles repeat the distinction for print in black and white.
_LINE_STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


@dataclass(frozen=True)
class Theme:
    """Colours of a page."""

    name: str
    ink: str
    faint: str
    paper: str
    lines: tuple[str, ...]
    hot: str
    cold: str
    classes: tuple[str, ...]  # as many as can be told apart
    diverging: str = "coolwarm"  # cold to hot; told apart with any colour vision

    def line(self, number: int) -> dict[str, Any]:
        """Colour and style of the line of a run."""
        styles = _LINE_STYLES[(number // len(self.lines) + number) % len(_LINE_STYLES)]
        return {"color": self.lines[number % len(self.lines)], "linestyle": styles}

    def colour(self, number: int) -> str:
        return self.lines[number % len(self.lines)]


# One set of class colours for both pages: the map on the page is painted once.
_CLASSES = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d1495b",
    "#9467bd",
    "#56b4e9",
    "#b5a400",
    "#e377c2",
    "#8c6d46",
    "#4fd1a5",
)
LIGHT = Theme(
    "light",
    "#24292f",
    "#d0d7de",
    "#ffffff",
    ("#0072b2", "#d55e00", "#008f68", "#b1568b", "#8a6d00", "#3b8fc2"),
    hot="#b40426",
    cold="#3b4cc0",
    classes=_CLASSES,
)
DARK = Theme(
    "dark",
    "#e6edf3",
    "#3d444d",
    "#161b22",
    ("#56b4e9", "#f0a03c", "#2bbf93", "#e29bc4", "#d9c84a", "#9ecbff"),
    hot="#f0606a",
    cold="#6f8ff0",
    classes=_CLASSES,
)
OTHER_CLASSES = "#9da7b3"  # those beyond the colours
THEMES = (LIGHT, DARK)
Paint = Callable[[Sequence[Any], Theme], None]
Table = Mapping[str, Any]  # columns of one length: arrays or lists


@dataclass(frozen=True)
class Picture:
    """A figure of the page."""

    name: str
    title: str
    caption: str
    description: str  # for those who can not see it
    addresses: Mapping[str, Sequence[str]]  # theme -> data: of each panel
    width: int
    height: int
    png: str  # relative to the page
    csv: str


@dataclass(frozen=True)
class Frame:
    """Names of a figure, and its size in panels of 4.6 × 3 inches."""

    name: str
    title: str
    caption: str
    description: str
    panels: int = 1
    height: float = 3.0
    width: float = 4.6
    on_page: bool = True  # or in files only


def draw(folder: Path, frame: Frame, paint: Paint, table: Table) -> Picture:
    """Paint a figure for both themes; writes figures/NAME.png and data/NAME.csv into `folder`."""
    addresses = {}
    for theme in THEMES:
        with mpl.rc_context(_settings(theme)), warnings.catch_warnings():
            # Names of runs may be in any script: what the font lacks becomes a box, and the page has the name.
            warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
            figure = Figure(figsize=(frame.width * frame.panels, frame.height), layout="constrained")
            FigureCanvasAgg(figure)
            panels = figure.subplots(1, frame.panels, squeeze=False)[0]
            paint(panels, theme)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # laid out once; panels by themselves would be spread otherwise
            if theme is LIGHT:
                path = folder / "figures" / f"{frame.name}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                figure.savefig(path, dpi=200, facecolor=theme.paper, metadata={"Software": None})
            if frame.on_page:
                addresses[theme.name] = _panel_addresses(figure, panels, frame)
    write_table(folder / "data" / f"{frame.name}.csv", table)
    return Picture(
        frame.name,
        frame.title,
        frame.caption,
        frame.description,
        addresses,
        round(96 * frame.width),
        round(96 * frame.height),
        f"figures/{frame.name}.png",
        f"data/{frame.name}.csv",
    )


def _panel_addresses(figure: Figure, panels: Sequence[Any], frame: Frame) -> list[str]:
    """Each panel as a picture of its own, so that a narrow page can set them one below the other."""
    addresses = []
    for position, panel in enumerate(panels):
        for other in panels:
            other.set_visible(other is panel)
        part = Bbox.from_bounds(position * frame.width, 0, frame.width, frame.height)
        buffer = io.BytesIO()
        metadata = {"Date": None, "Creator": None}
        figure.savefig(buffer, format="svg", transparent=True, bbox_inches=part, metadata=metadata)
        addresses.append(_data_address(buffer.getvalue()))
    return addresses


def write_table(path: Path, table: Table) -> None:
    """CSV with a header; numbers as short as they can be read back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in table.values()]
        writer.writerows(map(cell, row) for row in zip(*columns, strict=True))


def _settings(theme: Theme) -> Any:
    return {
        "axes.axisbelow": True,
        "axes.edgecolor": theme.faint,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": theme.ink,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": theme.ink,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "font.family": "DejaVu Sans",  # comes with matplotlib
        "font.size": 9,
        "grid.color": theme.faint,
        "grid.linewidth": 0.5,
        "legend.edgecolor": theme.faint,
        "legend.facecolor": theme.paper,
        "legend.fontsize": 8,
        "legend.framealpha": 0.85,
        "legend.labelcolor": theme.ink,
        "lines.linewidth": 1.8,
        "svg.fonttype": "path",
        "svg.hashsalt": "isogclr",  # the same names of clip paths in every run
        "text.color": theme.ink,
        "xtick.color": theme.ink,
        "ytick.color": theme.ink,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
    }


def _data_address(svg: bytes) -> str:
    text = re.sub(r"<metadata>.*?</metadata>", "", svg.decode("utf-8"), flags=re.DOTALL)
    text = re.sub(r"(\d+\.\d{4})\d+", r"\1", text)  # nobody sees more of a point
    return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode()}"


def logarithmic(axis: Any, low: float, high: float) -> None:
    """A log axis with plain numbers at 1, 2, 5 and their like, as many as there is room for."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    decades = np.log10(high / low)
    steps = [1.0] if decades > 3 else [1.0, 2.0, 5.0] if decades > 0.8 else [float(step) for step in range(1, 10)]
    if decades <= 0.3:
        axis.set_major_locator(mpl.ticker.MaxNLocator(5))
    else:
        axis.set_major_locator(LogLocator(base=10, subs=steps))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"))
    axis.set_minor_formatter(NullFormatter())


def percent(axis: Any, *, signed: bool = True) -> None:
    """An axis of shares, written as per cent; not signed where shares go both ways from 0."""
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * (value if signed else abs(value)):.3g} %"))


def colour_bar(axes: Any, artist: Any, label: str, ticks: Any) -> None:
    bar = axes.figure.colorbar(artist, ax=axes, label=label, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_ticks(list(ticks), labels=[f"{tick:.2g}" for tick in ticks])
    bar.minorticks_off()


def heat(values: Sequence[float], low: float, high: float, theme: Theme) -> list[str]:
    """Colours of temperatures on a log scale, as #rrggbb."""
    norm = mpl.colors.LogNorm(low, high, clip=True)
    return [mpl.colors.to_hex(colour) for colour in mpl.colormaps[theme.diverging](norm(np.asarray(values)))]


def heat_norm(low: float, high: float) -> Any:
    return mpl.colors.LogNorm(low, high, clip=True)
