"""What a run directory holds. Whatever is missing or damaged becomes a note; the rest is still shown."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isogclr.errors import InputError, IsogclrError
from isogclr.models.epoch_files import newest_epoch_file
from isogclr.report.directions import (
    UNKNOWN,
    Directions,
    directions_of,
    listed,
    sides_in,
    temperature_column,
)
from isogclr.report.journal import Journal, read_journal
from isogclr.state.generations import find_snapshot, generation_folders
from isogclr.state.snapshot import Snapshot

UNIMODAL = "unimodal"  # `kind` in the configuration of a run on views of pictures
GENERATIONS = ("checkpoints/generations", "generations")


@dataclass
class Run:
    """A run, as far as it can be read.

    Args:
        name: unique among the runs of a report.
        config: config.json; empty if there is none.
        snapshot: newest snapshot of the store that is whole.
        checkpoint: newest model.
        rows, fingerprint: of that store, and of the index that it was made with.
        directions: sides of a sample that have a temperature, if any have.
        has_temperatures: whether its store keeps them for each sample.
        notes: what can not be shown of this run, and why.
    """

    path: Path
    name: str
    config: dict[str, Any] = field(default_factory=dict)
    journal: Journal = field(default_factory=Journal)
    snapshot: Path | None = None
    step: int | None = None
    rows: int = 0
    fingerprint: str = ""
    index: Path | None = None
    checkpoint: Path | None = None
    directions: Directions = UNKNOWN
    has_temperatures: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def loss(self) -> str:
        return str(self.config.get("loss", "unknown loss"))

    @property
    def model(self) -> str:
        """Of two views of pictures, the backbone."""
        return str(self.config.get("model") or self.config.get("backbone") or "unknown model")

    @property
    def has_pictures_alone(self) -> bool:
        """Whether it was trained on views of pictures, by `training.unimodal`."""
        return self.config.get("kind") == UNIMODAL

    def loss_option(self, name: str) -> Any:
        options = self.config.get("loss_config")
        return options.get(name) if isinstance(options, dict) else None

    def data_setting(self, name: str) -> Any:
        """A setting of the data, from the part of the configuration that mirrors the command line."""
        settings = self.config.get("settings")
        data = settings.get("data") if isinstance(settings, dict) else None
        return data.get(name) if isinstance(data, dict) else None

    @property
    def progress(self) -> str:
        """How far it is; whether somebody still trains it can not be known, when it last wrote can."""
        epoch, planned = self._last_epoch(), self.config.get("epochs")
        if epoch is None:
            return "nothing was logged yet"
        if isinstance(planned, (int, float)) and epoch >= planned - 1e-6:
            return f"complete: {planned:g} epochs"
        of = f" of {planned:g}" if isinstance(planned, (int, float)) else ""
        return f"not complete: epoch {epoch:.2f}{of}, {self._last_seen()}"

    def _last_epoch(self) -> float | None:
        found = [self.journal.last(kind, "epoch") for kind in ("train", "val")]
        return max((epoch for epoch in found if epoch is not None), default=None)

    def _last_seen(self) -> str:
        if self.journal.last_time is None:
            return "still training, or stopped"
        minutes = (time.time() - self.journal.last_time) / 60
        ago = "less than a minute" if minutes < 1 else f"{minutes:.0f} minutes"
        ago = ago if minutes < 120 else f"{minutes / 60:.0f} hours"
        return f"still training, or stopped: it last wrote {ago} before this report"


def load_runs(paths: Sequence[Path], index: Path | None = None) -> list[Run]:
    """The runs in the given order, with distinct names; `index` replaces the one that their configuration names."""
    runs: list[Run] = []
    for path in paths:
        run = _load_run(path.absolute(), index)
        taken = {other.name for other in runs}
        if run.name in taken:
            run.name = f"{path.absolute().parent.name}/{run.name}"
        while run.name in taken:
            run.name += " (again)"
        runs.append(run)
    return runs


def _load_run(path: Path, index: Path | None) -> Run:
    expected = ("config.json", "metrics.jsonl", "checkpoints", "generations")
    if not path.is_dir() or not any((path / name).exists() for name in expected):
        found = "nothing" if not path.exists() else "a file" if path.is_file() else "a folder without any of these"
        raise InputError(
            f"{path}: found {found}, expected a run: a folder with {', '.join(expected[:-1])}; "
            "name the folder LOGS/NAME that training wrote"
        )
    run = Run(path, path.name)
    _read_config(run)
    _read_journal(run)
    _find_directions(run, columns=_find_store(run))
    _find_index(run, index)
    run.checkpoint = newest_epoch_file(path / "checkpoints")
    if run.checkpoint is None:
        run.notes.append("No model checkpoint (checkpoints/epoch_N.pt): nothing can be said about its embeddings.")
    return run


def _read_config(run: Run) -> None:
    path = run.path / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("it holds no JSON object")
        run.config = content
    except FileNotFoundError:
        run.notes.append("No config.json: its configuration, versions and temperature bounds are unknown.")
    except (OSError, ValueError) as error:
        run.notes.append(f"config.json can not be read ({error}): its configuration is unknown.")


def _read_journal(run: Run) -> None:
    try:
        run.journal = read_journal(run.path / "metrics.jsonl")
    except FileNotFoundError:
        run.notes.append("No metrics.jsonl: no curves.")
        return
    except OSError as error:
        run.notes.append(f"metrics.jsonl can not be read ({error}): no curves.")
        return
    if run.journal.unreadable:
        run.notes.append(
            f"metrics.jsonl: {run.journal.unreadable:,} line(s) can not be read and are left out; a run that is "
            "still writing, or was killed, leaves its last line cut off."
        )
    if run.journal.stride > 1:
        run.notes.append(f"The curves show one in {run.journal.stride} of the lines that were logged.")


def _find_store(run: Run) -> tuple[str, ...]:
    """The columns that its newest store keeps for each sample; none if there is no store that can be read."""
    for root in (run.path / name for name in GENERATIONS):
        if not generation_folders(root):
            continue
        try:
            run.snapshot = find_snapshot(root)
            with Snapshot(run.snapshot) as snapshot:
                run.step, run.rows = snapshot.header.step, snapshot.header.rows
                run.fingerprint = snapshot.header.index_fingerprint
                return snapshot.header.schema.state_columns
        except (IsogclrError, OSError) as error:
            run.snapshot = None
            run.notes.append(f"Its store can not be read, so no samples are shown: {error}")
        return ()
    run.notes.append("No committed store (checkpoints/generations): nothing is known of single samples.")
    return ()


def _find_directions(run: Run, columns: tuple[str, ...]) -> None:
    run.directions = directions_of(run.config, columns, run.journal.names("train"))
    run.has_temperatures = {temperature_column(side) for side in run.directions} <= set(columns)
    others = sides_in(columns)
    if others and not run.has_temperatures:
        run.notes.append(
            f"Its configuration names the directions {listed(run.directions)}, its store has temperatures of "
            f"{listed(others)}: none of them are shown."
        )


def _find_index(run: Run, index: Path | None) -> None:
    if index is not None:
        run.index = index
        return
    named = run.config.get("index")
    places = [Path(named)] if isinstance(named, str) and named else []
    places = [place if place.is_absolute() else Path.cwd() / place for place in places]
    places.append(run.path / "index")  # also if the whole run was moved
    run.index = next((place for place in places if place.is_dir()), None)
