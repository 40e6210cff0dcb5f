"""The same pictures through the models of several runs: which runs, and which pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from isogclr.report.arrangement import arrange, arrangement_figure, choose_rows, embed_rows
from isogclr.report.canvas import Picture
from isogclr.report.curves import label
from isogclr.report.detail import Detail, Features
from isogclr.report.loading import Run
from isogclr.report.model_of_run import LoadEmbedder, load_model_of
from isogclr.report.run_data import RunData
from isogclr.report.scan import Rows, Scan


@dataclass(frozen=True)
class Seen:
    """Pictures as one run sees them; rows ascend."""

    run: Run
    rows: Rows
    features: Features


def side_by_side(
    runs: Sequence[Run],
    scans: Mapping[str, Scan],
    data: Mapping[str, RunData],
    detailed: tuple[Run, Detail] | None,
    load_embedder: LoadEmbedder,
    say: Callable[[str], None],
    folder: Path,
) -> Picture | None:
    """Of all runs on pictures alone whose data is that of the first; None if the map of its samples says it all.

    Args:
        detailed: the run whose samples are shown, and these: what was embedded for them is not embedded again.
    """
    able = [run for run in runs if _has_pictures(run, scans, data)]
    known = None if detailed is None or detailed[0] not in able or not detailed[1].features else detailed
    if not able or (known is not None and len(able) == 1):
        return None
    first = able[0] if known is None else known[0]
    reader, rows = data[first.name].reader, choose_rows(scans[first.name].sample_rows)
    assert reader is not None
    found = []
    for run in able:
        if run.fingerprint != first.fingerprint:
            run.notes.append(f"Its pictures are not those of {first.name}, so its features are not shown beside.")
        elif known is not None and run is known[0]:
            found.append(Seen(run, *_embedded(known[1], rows)))
        elif (embed := load_model_of(run, load_embedder)) is not None:
            say(f"embedding {len(rows):,} pictures with the model of {run.name} …")
            found.append(Seen(run, *embed_rows(reader, embed, rows)))
    return _draw(runs, found, data[first.name], folder)


def _has_pictures(run: Run, scans: Mapping[str, Scan], data: Mapping[str, RunData]) -> bool:
    return run.has_pictures_alone and run.name in scans and data[run.name].reader is not None


def _embedded(detail: Detail, rows: Rows) -> tuple[Rows, Features]:
    places = {row: place for place, row in enumerate(detail.embedded)}
    kept = [row for row in rows.tolist() if row in places]
    return np.array(kept, np.int64), detail.features[detail.directions[0]][[places[row] for row in kept]]


def _draw(runs: Sequence[Run], found: Sequence[Seen], data: RunData, folder: Path) -> Picture | None:
    if not found:
        return None
    common = found[0].rows
    for one in found:
        common = np.intersect1d(common, one.rows)
    if len(common) < 2:
        return None
    classes = np.full(len(common), -1, np.int32) if data.labels is None else data.labels.of(common)
    arranged = [
        arrange(runs.index(one.run), label(one.run, runs), one.features[np.isin(one.rows, common)], classes)
        for one in found
    ]
    return arrangement_figure(arranged, data.labels, classes, folder)
