"""What makes a run that of `training.unimodal`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from isogclr.errors import TrainingError
from isogclr.pictures import LongTail, open_pictures
from support.picture_sets import write_folders
from training.views.view_program import UnimodalProgram, write_long_tail


def test_a_run_goes_on_with_the_pictures_that_it_kept(tmp_path: Path) -> None:
    pictures = open_pictures(str(write_folders(tmp_path / "data", {"ant": 8, "bee": 8})))
    kept, path = LongTail.of(pictures, 4, seed=0), tmp_path / "long_tail.json"
    write_long_tail(kept, path)
    written = path.read_bytes()
    write_long_tail(kept, path)
    assert path.read_bytes() == written
    for other in (LongTail.of(pictures, 2, seed=0), dataclasses.replace(kept, data="other pictures")):
        with pytest.raises(TrainingError, match=r"kept by --imbalance 4 .* go on with the flags and the data"):
            write_long_tail(other, path)
    assert path.read_bytes() == written


@pytest.mark.parametrize(("size", "mean"), [("32", 0.4914), ("224", 0.485)])
def test_pictures_are_normalised_as_those_that_the_stem_is_for(tmp_path: Path, size: str, mean: float) -> None:
    program = UnimodalProgram.parse(["--data", str(tmp_path), "--device", "cpu", "--image-size", size])
    assert program._preprocessing.mean[0] == mean


def test_it_measures_only_with_labelled_data(tmp_path: Path) -> None:
    line = ["--data", str(tmp_path), "--device", "cpu"]
    assert not UnimodalProgram.parse(line).evaluates
    assert UnimodalProgram.parse([*line, "--val-data", str(tmp_path)]).evaluates
