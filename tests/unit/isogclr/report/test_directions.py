"""Where the report takes the directions of a run from, and what it says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isogclr.report.directions import directions_of, opposite, together
from isogclr.report.loading import Run, load_runs
from isogclr.state import STORE_SNAPSHOT, StateStore, schema_for, write_generation

STORE = ("image_temperature", "image_log_mean", "first_view_temperature", "image_momentum")
LOGGED = ("loss", "text.temperature.mean", "image.temperature.mean", "image.temperature.q05")


@pytest.mark.parametrize(
    ("config", "columns", "logged", "expected"),
    [
        ({"directions": ["text", "image"]}, STORE, LOGGED, ("text", "image")),
        ({"directions": ["image"]}, (), (), ("image",)),
        ({}, STORE, LOGGED, ("image", "first_view")),
        ({}, ("image_log_mean",), LOGGED, ("image", "text")),
        ({}, (), ("view.temperature.mean",), ("view",)),
        ({}, (), ("loss",), ("image", "text")),
    ],
)
def test_the_first_source_that_names_any(
    config: dict[str, Any], columns: tuple[str, ...], logged: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert directions_of(config, columns, logged) == expected


@pytest.mark.parametrize("named", [None, "image", [], [3], ["<b>"], ["Image"], {"image": 1}])
def test_names_that_are_none(named: object) -> None:
    assert directions_of({"directions": named}, STORE, ()) == ("image", "first_view")


def test_what_a_side_is_compared_with() -> None:
    assert [opposite(("image", "text"), side) for side in ("image", "text")] == ["text", "image"]
    assert opposite(("image",), "image") == "image"


def test_directions_of_several_runs() -> None:
    assert together([("view",), ("image", "text"), ("image",)]) == ("view", "image", "text")


def run_with(folder: Path, columns: tuple[str, ...], **config: Any) -> Run:
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    schema = schema_for(columns)
    with (
        StateStore.create(folder / "live", schema, 4, "fingerprint") as store,
        write_generation(folder / "run" / "checkpoints" / "generations", step=1) as generation,
    ):
        store.write(np.arange(4), schema.zeros(4), step=1)
        store.commit(generation / STORE_SNAPSHOT)
    return load_runs([folder / "run"])[0]


def test_a_store_of_one_direction(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("image_temperature", "image_log_mean", "image_momentum"))
    assert (run.directions, run.has_temperatures) == (("image",), True)


def test_a_store_without_temperatures(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("image_log_mean",), directions=["image"])
    assert (run.directions, run.has_temperatures) == (("image",), False)


def test_a_store_of_other_directions_than_the_configuration(tmp_path: Path) -> None:
    run = run_with(tmp_path, ("image_temperature",), directions=["image", "text"])
    assert not run.has_temperatures
    expected = "names the directions image and text, its store has temperatures of image: none of them are shown"
    assert any(expected in note for note in run.notes)
