"""The samples of one run: which are shown, how they look, how common they are, what they are pushed away from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from isogclr.report.commonness import neighbour_similarity, word_frequency
from isogclr.report.directions import (
    UNKNOWN,
    Directions,
    inputs_of,
    opposite,
    reads_captions,
    reads_pictures,
    temperature_column,
)
from isogclr.report.negatives import HardNegatives, hard_negatives
from isogclr.report.projection import project
from isogclr.report.row_classes import Labels
from isogclr.report.run_data import Reader
from isogclr.report.samples import Source
from isogclr.report.scan import Scan
from isogclr.report.thumbnails import Thumbnail, decode, thumbnail

Features = npt.NDArray[np.float32]
CAPTION_CHARACTERS = 400
MAP_POINTS = 800
ANCHORS_EACH = 6  # of each end of each temperature
NEGATIVES = 6
_BATCH = 64
_NOT_A_NUMBER = float("nan")


class Embed(Protocol):
    """The model of a run; rows of its features have unit length."""

    def images(self, images: Sequence[Any]) -> tuple[Features, Features]:
        """Of Pillow's pictures, in RGB: what the model is for, and what the loss compares. [B, D], [B, E]

        Of pictures and captions both are the same. Of two views of pictures, the first are the backbone's, for
        neighbours and the map; the second the projector's, for the negatives: τ and p* are about these.
        """

    def texts(self, captions: Sequence[str]) -> Features:
        """[B, D]; asked only of a run with a direction whose inputs are captions."""


@dataclass
class Shown:
    """A sample as the page shows it."""

    row: int
    shard: str
    key: str
    caption: str | None
    cut: int  # characters of the caption that are not shown
    picture: Thumbnail | None
    problem: str
    temperature: dict[str, float]  # by side
    visits: int
    neighbours: dict[str, float]  # mean similarity to the nearest others, by side
    words: float = _NOT_A_NUMBER
    label: str | None = None  # name of its class


@dataclass
class Detail:
    """What is known of single samples. Arrays over embedded samples share the order of `embedded`."""

    directions: Directions = UNKNOWN
    samples: dict[int, Shown] = field(default_factory=dict)  # by row; all that were read
    largest: dict[str, list[int]] = field(default_factory=dict)  # rows by side, most extreme first
    smallest: dict[str, list[int]] = field(default_factory=dict)
    embedded: list[int] = field(default_factory=list)  # rows
    features: dict[str, Features] = field(default_factory=dict)
    compared: dict[str, Features] = field(default_factory=dict)  # by the loss; the same ones, or a projector's
    map_rows: list[int] = field(default_factory=list)
    map_points: dict[str, Features] = field(default_factory=dict)
    anchors: dict[int, dict[str, HardNegatives]] = field(default_factory=dict)
    full_captions: dict[int, str] = field(default_factory=dict)
    labels: Labels | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def has_captions(self) -> bool:
        """Whether captions belong to the samples; a run over pictures alone may have none."""
        expected = any(reads_captions(side) for side in self.directions)
        return expected or any(sample.caption is not None for sample in self.samples.values())

    @property
    def has_pictures(self) -> bool:
        """Whether pictures belong to the samples; a run over captions alone may have none."""
        expected = any(reads_pictures(side) for side in self.directions)
        return expected or any(sample.picture is not None for sample in self.samples.values())

    def classes(self, rows: Sequence[int]) -> npt.NDArray[np.int32]:
        """Numbers of their classes, −1 where unknown."""
        return np.full(len(rows), -1, np.int32) if self.labels is None else self.labels.of(rows)

    def temperatures(self, side: str) -> npt.NDArray[np.float64]:
        """Of the embedded samples."""
        return np.array([self.samples[row].temperature[side] for row in self.embedded])

    def reason(self, row: int) -> str:
        """Why a row is among the anchors."""
        for name, ends in (("hot", self.largest), ("cold", self.smallest)):
            for side in self.directions:
                if row in ends[side]:
                    return f"{name} {side}"
        return "random" if row in self.map_rows[:ANCHORS_EACH] else "chosen"

    def on_page(self) -> list[Shown]:
        """Samples that any part of the page refers to, by row."""
        rows = {row for ends in (self.largest, self.smallest) for side in ends.values() for row in side}
        rows |= set(self.map_rows) | set(self.anchors)
        for directions in self.anchors.values():
            for found in directions.values():
                rows |= {self.embedded[position] for position in found.positions.tolist()}
        if not self.embedded:  # no map: a part of the random sample, for the table
            rows |= set(list(self.samples)[:MAP_POINTS])
        return [self.samples[row] for row in sorted(rows)]


def collect(
    scan: Scan,
    directions: Directions,
    reader: Reader | None,
    embed: Embed | None,
    chosen: Sequence[int],
    folder: Path,
    labels: Labels | None = None,
) -> Detail:
    """Read, embed and compare the samples that the scan has chosen; writes data/embeddings.npz."""
    detail = Detail(directions, labels=labels)
    for side in directions:
        name = temperature_column(side)
        detail.largest[side] = scan.largest[name].rows.tolist()
        detail.smallest[side] = scan.smallest[name].rows.tolist()
    rows = np.array(sorted(scan.states), np.int64)
    if reader is None:
        detail.samples = {row: _shown(Source(row, "", ""), None, scan, detail) for row in rows.tolist()}
        return detail
    _read(detail, scan, reader, embed, rows)
    if len(detail.embedded) > 1:
        _compare(detail, scan, chosen)
        _save(detail, folder)
    return detail


def picture_of(source: Source) -> Any:
    """The picture of a sample, None if it has none; ValueError, with a reason, if it can not be decoded."""
    if source.image is None or isinstance(source.image, bytes):
        return None if source.image is None else decode(source.image)
    try:
        return source.image()
    except Exception as error:  # Pillow raises whatever its decoders meet
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error


def _read(detail: Detail, scan: Scan, reader: Reader, embed: Embed | None, rows: Any) -> None:
    sources = reader.read(rows)
    parts = _Parts(detail.directions)
    needed = inputs_of(detail.directions)
    unsound = 0
    while batch := list(islice(sources, _BATCH)):
        images, captions, embedded = [], [], []
        for source in batch:
            try:
                image = picture_of(source)
            except ValueError as error:
                image, unsound = None, unsound + 1
                source = _with_problem(source, f"the image can not be decoded: {error}")  # noqa: PLW2901
            detail.samples[source.row] = _shown(source, image, scan, detail)
            detail.full_captions[source.row] = source.caption or ""
            found = {"image": image, "caption": source.caption}
            if all(found[what] is not None for what in needed):
                images.append(image)
                captions.append(source.caption or "")
                embedded.append(source.row)
        if embed is not None and embedded:
            parts.add(embed, images, captions)
            detail.embedded += embedded
    if unsound:
        detail.notes.append(f"{unsound:,} of {len(detail.samples):,} images that were read can not be decoded.")
    detail.features, detail.compared = parts.joined()


class _Parts:
    """Features of the directions, batch by batch; what the loss compares is kept apart only if it differs."""

    def __init__(self, directions: Directions) -> None:
        self.learned: dict[str, list[Features]] = {side: [] for side in directions}
        self.compared: dict[str, list[Features]] = {side: [] for side in directions}

    def add(self, embed: Embed, images: Sequence[Any], captions: Sequence[str]) -> None:
        for side, found in self.learned.items():
            if reads_captions(side):
                found.append(embed.texts(captions))
                continue
            learned, compared = embed.images(images)
            found.append(learned)
            if compared is not learned:
                self.compared[side].append(compared)

    def joined(self) -> tuple[dict[str, Features], dict[str, Features]]:
        learned = {side: np.concatenate(found) for side, found in self.learned.items() if found}
        apart = {side: np.concatenate(found) for side, found in self.compared.items() if found}
        return learned, {**learned, **apart}


def _compare(detail: Detail, scan: Scan, chosen: Sequence[int]) -> None:
    for side in detail.directions:
        for row, value in zip(detail.embedded, neighbour_similarity(detail.features[side]), strict=True):
            detail.samples[row].neighbours[side] = float(value)
    captions = [detail.full_captions[row] for row in detail.embedded]
    for row, value in zip(detail.embedded, word_frequency(captions), strict=True):
        detail.samples[row].words = float(value)
    _make_map(detail, scan)
    _find_negatives(detail, chosen)


def _make_map(detail: Detail, scan: Scan) -> None:
    """Of random samples only: extremes would be more frequent on the map than they are."""
    drawn = set(scan.sample_rows.tolist())
    positions = np.array([place for place, row in enumerate(detail.embedded) if row in drawn], np.int64)
    order = np.random.default_rng(0).permutation(positions)[:MAP_POINTS]
    detail.map_rows = [detail.embedded[position] for position in order.tolist()]
    if len(order):
        detail.map_points = {side: project(detail.features[side][order]) for side in detail.directions}


def _find_negatives(detail: Detail, chosen: Sequence[int]) -> None:
    rows = list(chosen)
    for ends in (detail.largest, detail.smallest):
        for side in detail.directions:
            rows += ends[side][:ANCHORS_EACH]
    rows += detail.map_rows[:ANCHORS_EACH]
    places = {row: place for place, row in enumerate(detail.embedded)}
    rows = [row for row in dict.fromkeys(rows) if row in places]
    anchors = np.array([places[row] for row in rows], np.int64)
    classes = None if detail.labels is None else detail.classes(detail.embedded)
    for side in detail.directions:
        others = detail.compared[opposite(detail.directions, side)]
        temperatures = detail.temperatures(side).astype(np.float32)
        found = hard_negatives(anchors, detail.compared[side], others, temperatures, NEGATIVES, classes)
        for row, negatives in zip(rows, found, strict=True):
            detail.anchors.setdefault(row, {})[side] = negatives


def _save(detail: Detail, folder: Path) -> None:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    named: dict[str, Any] = detail.features
    np.savez(folder / "data" / "embeddings.npz", row=np.array(detail.embedded), **named)


def _with_problem(source: Source, problem: str) -> Source:
    return Source(source.row, source.shard, source.key, None, source.caption, problem)


def _shown(source: Source, image: Any, scan: Scan, detail: Detail) -> Shown:
    state, directions = scan.states[source.row], detail.directions
    caption = source.caption
    return Shown(
        row=source.row,
        shard=source.shard,
        key=source.key,
        caption=None if caption is None else caption[:CAPTION_CHARACTERS],
        cut=max(0, len(caption or "") - CAPTION_CHARACTERS),
        picture=None if image is None else thumbnail(image),
        problem=source.problem,
        temperature={side: float(state[temperature_column(side)]) for side in directions},
        visits=int(state["visits"]),
        neighbours=dict.fromkeys(directions, _NOT_A_NUMBER),
        label=None if detail.labels is None else detail.labels.name(source.row),
    )
