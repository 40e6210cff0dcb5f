"""From what is known of the runs to one HTML file."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from isogclr.report.canvas import LIGHT, Picture, heat
from isogclr.report.class_colours import palette
from isogclr.report.class_tables import COLUMNS, ClassTable
from isogclr.report.detail import Detail, Shown
from isogclr.report.directions import Directions, opposite, reads_captions
from isogclr.report.relations import heat_range
from isogclr.report.wording import clean, number, share

_HINTS = (
    "Hot: the paper expects frequent semantics here, things with many relatives in the data.",
    "Cold: the paper expects rare semantics, told apart from everything else.",
)
_CAPTION_HINTS = ("Captions that many images would fit.", "Captions that fit few images.")
_MAP_SIZE, _MAP_ROOM, _SCALE_STEPS = 400, 12, 50
_ROOM_FOR_THUMBNAILS = 6_000_000


Setting = tuple[str, list[str], bool]  # name, one value per run, whether they differ


@dataclass
class RunCard:
    """A run at the head of the page."""

    label: str
    loss: str
    model: str
    progress: str
    facts: list[tuple[str, str]]


@dataclass
class Page:
    """All that the template shows."""

    title: str
    made: str
    version: str
    runs: list[RunCard] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    curves: list[Picture] = field(default_factory=list)
    distributions: list[Picture] = field(default_factory=list)
    classes: list[Picture] = field(default_factory=list)
    class_tables: list[ClassTable] = field(default_factory=list)
    class_table_columns: tuple[str, ...] = COLUMNS
    arrangement: Picture | None = None
    detail: Detail | None = None
    detail_name: str = ""
    sampling: str = ""
    relations: list[Picture] = field(default_factory=list)
    map_picture: Picture | None = None
    extremes_map: Picture | None = None
    health: Picture | None = None
    stores: list[str] = field(default_factory=list)
    health_table: list[tuple[str, list[str]]] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    more_settings: list[Setting] = field(default_factory=list)
    samples: list[Shown] = field(default_factory=list)
    policy: str = ""
    style: str = ""
    script: str = ""

    @property
    def directions(self) -> Directions:
        """Of the run whose samples are shown."""
        return () if self.detail is None else self.detail.directions

    @property
    def has_captions(self) -> bool:
        return self.detail is not None and self.detail.has_captions

    @property
    def has_pictures(self) -> bool:
        return self.detail is not None and self.detail.has_pictures

    @property
    def has_classes(self) -> bool:
        return self.detail is not None and self.detail.labels is not None

    @property
    def sought(self) -> list[str]:
        """What samples are searched by, as (one, several)."""
        captions = ("caption", "captions") if self.has_captions else ("key", "keys")
        kinds = [("class", "classes"), captions] if self.has_classes else [captions]
        return [joint.join(words) for joint, words in zip((" or ", " and "), zip(*kinds, strict=True), strict=True)]

    @property
    def columns(self) -> list[tuple[str, str]]:
        """Columns of the table of samples that can be sorted by: name, title."""
        return [
            *([("label", "Class")] if self.has_classes else []),
            *([("caption", "Caption")] if self.has_captions else []),
            *((side, f"{side.capitalize()} τ") for side in self.directions),
            ("visits", "Visits"),
            ("neighbours", "Similarity of neighbours"),
            *([("words", "Frequency of words")] if self.has_captions else []),
            ("row", "Row"),
        ]

    @property
    def samples_by_temperature(self) -> list[Shown]:
        """The hottest first, by the first direction."""
        return sorted(self.samples, key=lambda sample: -sample.temperature[self.directions[0]])

    @property
    def galleries(self) -> list[dict[str, Any]]:
        return [] if self.detail is None else _galleries(self.detail)

    @property
    def contents(self) -> list[tuple[str, str]]:
        parts: list[tuple[str, str, Any]] = [
            ("notes", "What could not be shown", self.notes),
            ("curves", "Training", self.curves),
            ("temperatures", "Temperatures", self.distributions),
            ("classes", "Classes", self.classes),
            ("arrangement", "Arrangement", self.arrangement),
            ("gallery", "Hottest and coldest", self.detail),
            ("semantics", "Semantics", self.relations or self.map_picture),
            ("negatives", "Hard negatives", self.detail and self.detail.anchors),
            ("samples", "Samples", self.detail),
            ("health", "Health of the store", self.health_table),
            ("configuration", "Configuration", True),
        ]
        return [(name, title) for name, title, shown in parts if shown]

    @property
    def maps(self) -> list[dict[str, Any]]:
        return [] if self.detail is None else _maps(self.detail)

    @property
    def anchors(self) -> list[dict[str, Any]]:
        return [] if self.detail is None else _anchors(self.detail)


def render(page: Page) -> str:
    """The page as text; its policy allows nothing but its own style, script and pictures."""
    page.style, page.script = _file("report.css"), _file("report.js")
    page.policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(page.style)}'; script-src '{_hash(page.script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    if page.detail is not None:
        page.samples = _within_room(page.detail.on_page(), page)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters |= {"clean": clean, "number": number, "share": share, "signed": _signed, "exact": _exact}
    # The two files are ours, hold no markup, and must reach the page as they were hashed.
    page.style, page.script = Markup(page.style), Markup(page.script)
    return environment.from_string(_file("report.html.j2")).render(page=page)


def _file(name: str) -> str:
    return (resources.files("isogclr.report") / "page_files" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _exact(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.9g}"


def _within_room(samples: list[Shown], page: Page) -> list[Shown]:
    """Pictures up to the room that a page has; the samples beyond that are shown without."""
    used = 0
    for position, sample in enumerate(samples):
        used += len(sample.picture.address) if sample.picture is not None else 0
        if used > _ROOM_FOR_THUMBNAILS:
            for other in samples[position:]:
                other.picture, other.problem = None, other.problem or "left out to keep the page small"
            page.notes.append(
                ("", f"Pictures of {len(samples) - position:,} samples were left out to keep the page small.")
            )
            break
    return samples


def _galleries(detail: Detail) -> list[dict[str, Any]]:
    found = []
    for side in detail.directions:
        hints = _CAPTION_HINTS if reads_captions(side) and detail.has_pictures else _HINTS
        for end, rows, hint in zip(("largest", "smallest"), (detail.largest, detail.smallest), hints, strict=True):
            title = f"{side.capitalize()}s with the {end} temperatures"
            found.append({"side": side, "title": title, "hint": hint, "rows": rows[side]})
    return found


def _maps(detail: Detail) -> list[dict[str, Any]]:
    """One map per direction, coloured by temperature, and one of the first by class."""
    panels = []
    for side in detail.directions if detail.map_points else ():
        values = [detail.samples[row].temperature[side] for row in detail.map_rows]
        coldest, hottest = heat_range(detail.temperatures(side))
        steps = [coldest * (hottest / coldest) ** (step / (_SCALE_STEPS - 1)) for step in range(_SCALE_STEPS)]
        panels.append(
            {
                "title": f"{side} embeddings",
                "side": side,
                "low": coldest,
                "high": hottest,
                "scale": heat(steps, coldest, hottest, LIGHT),
                "points": _points(detail, side, heat(values, coldest, hottest, LIGHT)),
            }
        )
    if panels and detail.labels is not None:
        panels.append(_class_map(detail, detail.directions[0]))
    return panels


def _class_map(detail: Detail, side: str) -> dict[str, Any]:
    assert detail.labels is not None
    classes = detail.classes(detail.map_rows)
    groups = palette(detail.labels, classes, LIGHT).groups(classes, LIGHT)
    colours = [""] * len(classes)
    for _, colour, members in groups:
        for place in members.nonzero()[0].tolist():
            colours[place] = colour
    return {
        "title": f"{side} embeddings, by class",
        "side": side,
        "scale": [],
        "legend": [(name, colour) for name, colour, _ in groups],
        "points": _points(detail, side, colours),
    }


def _points(detail: Detail, side: str, colours: list[str]) -> list[dict[str, Any]]:
    points = detail.map_points[side]
    low, high = points.min(axis=0), points.max(axis=0)
    inner = _MAP_SIZE - 2 * _MAP_ROOM
    places = _MAP_ROOM + inner * (points - low) / (high - low).clip(1e-9)
    return [
        {"x": f"{x:.1f}", "y": f"{y:.1f}", "colour": colour, "row": row}
        for (x, y), colour, row in zip(places, colours, detail.map_rows, strict=True)
    ]


def _anchors(detail: Detail) -> list[dict[str, Any]]:
    return [
        {
            "sample": detail.samples[row],
            "why": detail.reason(row),
            "directions": [
                {
                    "title": f"Its {side} against other {opposite(detail.directions, side)}s",
                    "effective": found.effective,
                    "own_class": None if math.isnan(found.own_class) else found.own_class,
                    "strongest": max(float(found.weights[0]), 1e-4),
                    "negatives": [
                        {
                            "sample": detail.samples[detail.embedded[position]],
                            "same_class": detail.samples[row].label is not None
                            and detail.samples[detail.embedded[position]].label == detail.samples[row].label,
                            "hardness": float(hardness),
                            "weight": float(weight),
                        }
                        for position, hardness, weight in zip(
                            found.positions.tolist(), found.hardness, found.weights, strict=True
                        )
                    ],
                }
                for side, found in directions.items()
            ],
        }
        for row, directions in detail.anchors.items()
    ]
