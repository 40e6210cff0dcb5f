"""The data of a run, as far as it is still there: its samples by row, and their classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from isogclr.csv_table import CsvColumns
from isogclr.errors import IsogclrError
from isogclr.report.directions import inputs_named, inputs_of
from isogclr.report.loading import Run
from isogclr.report.row_classes import Labels, make_labels
from isogclr.report.samples import SampleReader, Source
from isogclr.report.scan import Intervals, Rows
from isogclr.shard_index.files import CSV, TAR
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.patterns import expand_sources


class Pictures(Protocol):
    """What the report asks of `isogclr.pictures`."""

    @property
    def labels(self) -> Any:
        """Number of the class by row, −1 where unknown; None if the data has no classes."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Their names, if they have any."""

    def read(self, row: int) -> Any:
        """Pillow's picture, in RGB."""


class Reader(Protocol):
    """Samples by row, whatever they lie in."""

    problems: dict[str, str]  # by shard

    def some_shards(self, count: int) -> Intervals | None:
        """Rows that a sample should keep to, so that not all shards are opened; None is any."""

    def read(self, rows: Rows) -> Iterator[Source]:
        """One source per row."""


@dataclass(frozen=True)
class RunData:
    """What is known of the samples of a run beside its store."""

    reader: Reader | None = None
    labels: Labels | None = None


class PictureReader:
    """Pictures that lie in files of their own, or in the archives of CIFAR: any row costs the same.

    Args:
        index: of the run.
        pictures: the data.
    """

    def __init__(self, index: ShardIndex, pictures: Pictures) -> None:
        self.index, self.pictures = index, pictures
        self.problems: dict[str, str] = {}

    def some_shards(self, count: int) -> Intervals | None:
        return None

    def read(self, rows: Rows) -> Iterator[Source]:
        ordered = np.sort(np.asarray(rows, np.int64))
        for row, (shard, key) in zip(ordered.tolist(), self.index.locate(ordered), strict=True):
            yield Source(row, shard, key, partial(self.pictures.read, row))


Opened = dict[tuple[str, str, str, str], Pictures]  # by path, part, kind of label and index


def open_data(run: Run, moved_to: str | None, opened: Opened) -> RunData:
    """Index, pictures and classes of a run; whatever is missing becomes a note of the run.

    Args:
        moved_to: where the data is now, if not where the index saw it last.
        opened: pictures of the runs before, since several runs tend to share them; added to.
    """
    lost = inputs_named(run.directions)
    if run.index is None:
        run.notes.append(
            f"No shard index: samples have row numbers, but no {inputs_named(run.directions, 'and no')}; "
            "name it with --index."
        )
        return RunData()
    try:
        index = ShardIndex.load(run.index)
    except (IsogclrError, OSError) as error:
        run.notes.append(f"The shard index can not be used, so there are no {lost}: {error}")
        return RunData()
    reason = _not_of_the_store(run, index)
    if reason:
        run.notes.append(f"The index is not that of the store, so there are no {lost}: {reason}")
        return RunData()
    pictures = _pictures(run, index, moved_to, opened) if run.has_pictures_alone else None
    return RunData(_reader(run, index, pictures, moved_to), None if pictures is None else _labels(run, pictures))


def _not_of_the_store(run: Run, index: ShardIndex) -> str:
    """Why the rows of the store are not those of the index; nothing if they are, or if there is no store."""
    if run.snapshot is None:
        return ""
    try:
        return "" if index.rows_at(run.fingerprint) == run.rows else "it had another number of rows then"
    except IsogclrError as error:
        return str(error)


def _pictures(run: Run, index: ShardIndex, moved_to: str | None, opened: Opened) -> Pictures | None:
    from isogclr.pictures import open_pictures  # noqa: PLC0415 (only these runs need it)

    path = moved_to or run.config.get("data")
    split, label = (str(run.config.get(name) or usual) for name, usual in (("split", "train"), ("label", "cls")))
    if not isinstance(path, str):
        run.notes.append("Its configuration does not say where its pictures are: say it with --shards.")
        return None
    place = (path, split, label, index.fingerprint)
    try:
        if place not in opened:
            opened[place] = open_pictures(path, index, split, label=label)
        return opened[place]
    except (IsogclrError, OSError, ValueError) as error:
        run.notes.append(
            f"Its pictures can not be opened, so nothing is said of classes: {error}. If they were moved, "
            "say where with --shards."
        )
        return None


def _labels(run: Run, pictures: Pictures) -> Labels | None:
    """Of shards they are read only now, in one pass over their headers."""
    try:
        labels = make_labels(pictures.labels, pictures.classes)
    except (IsogclrError, OSError, ValueError) as error:
        run.notes.append(f"The labels of its pictures can not be read, so nothing is said of classes: {error}")
        return None
    if labels is None:
        run.notes.append("Its pictures have no labels: nothing is said of classes.")
    return labels


def _reader(run: Run, index: ShardIndex, pictures: Pictures | None, moved_to: str | None) -> Reader | None:
    kinds = set(index.files.tables.shards["kind"].tolist())
    if kinds <= {TAR, CSV}:
        try:
            shards = None if moved_to is None else expand_sources(moved_to)
        except (IsogclrError, OSError) as error:
            run.notes.append(f"--shards can not be used, so there are no {inputs_named(run.directions)}: {error}")
            return None
        return SampleReader(index, shards, _columns(run), inputs_of(run.directions))
    return None if pictures is None else PictureReader(index, pictures)


def _columns(run: Run) -> CsvColumns:
    """How the run was told to read its table; the defaults where its configuration is lost."""
    settings = {"separator": "csv_separator", "image": "csv_image_key", "caption": "csv_caption_key"}
    given = {name: run.data_setting(setting) for name, setting in settings.items()}
    return CsvColumns(**{name: str(value) for name, value in given.items() if value})
