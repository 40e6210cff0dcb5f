"""The data of a run on pictures alone: what is read, what is missing, and that it is opened once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from isogclr.report.detail import picture_of
from isogclr.report.loading import Run, load_runs
from isogclr.report.run_data import Opened, PictureReader, open_data
from isogclr.report.samples import SampleReader
from support.picture_sets import random_pixels, write_cifar10, write_folders, write_shards
from support.unimodal_runs import make_unimodal_run


def load(folder: Path) -> Run:
    return load_runs([folder])[0]


def test_a_folder_per_class(tmp_path: Path) -> None:
    data = write_folders(tmp_path / "data", {"cat": 3, "dog": 2})
    (data / "dog" / "001.png").write_bytes(b"no picture")
    run = load(make_unimodal_run(tmp_path / "run", str(data), weights=None))
    found = open_data(run, None, {})
    assert isinstance(found.reader, PictureReader)
    assert found.labels is not None
    sources = {source.row: source for source in found.reader.read(np.array([4, 0]))}
    assert (sources[0].shard, sources[0].key, found.labels.name(0)) == ("cat", "000.png", "cat")
    assert picture_of(sources[0]).size == (8, 8)
    with pytest.raises(ValueError, match="UnidentifiedImageError"):
        picture_of(sources[4])
    assert found.reader.some_shards(1) is None  # a sample of rows from some classes only would mislead


def test_cifar(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "data", random_pixels(50), [one % 10 for one in range(50)])
    run = load(make_unimodal_run(tmp_path / "run", str(folder), weights=None))
    found = open_data(run, None, {})
    assert found.reader is not None
    assert found.labels is not None
    source = next(found.reader.read(np.array([23])))
    assert found.labels.name(23) == "class 3"
    np.testing.assert_array_equal(np.asarray(picture_of(source)), random_pixels(50)[23].transpose(1, 2, 0))


def test_shards_are_read_as_those_of_pairs_are(tmp_path: Path) -> None:
    """Bytes of their files: nothing of them reaches a decoder that is not careful."""
    run = load(make_unimodal_run(tmp_path / "run", write_shards(tmp_path / "data", [[1, 0], [0]]), weights=None))
    found = open_data(run, None, {})
    assert isinstance(found.reader, SampleReader)
    assert found.labels is not None
    assert [found.labels.name(row) for row in range(3)] == ["1", "0", "0"]
    assert all(isinstance(source.image, bytes) and not source.problem for source in found.reader.read(np.arange(3)))


def test_runs_on_the_same_data_open_it_once(tmp_path: Path) -> None:
    data = str(write_folders(tmp_path / "data", {"cat": 3, "dog": 2}))
    opened: Opened = {}
    for name in ("one", "two"):
        open_data(load(make_unimodal_run(tmp_path / name, data, weights=None)), None, opened)
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("change", "note"),
    [
        ({"data": None}, "does not say where its pictures are"),
        ({"data": "/nowhere"}, "Its pictures can not be opened, so nothing is said of classes"),
        ({"index": "/nowhere"}, "No shard index: samples have row numbers, but no pictures;"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, change: dict[str, object], note: str) -> None:
    data = str(write_folders(tmp_path / "data", {"cat": 3, "dog": 2}))
    folder = make_unimodal_run(tmp_path / "run", data, weights=None)
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if "index" in change:
        (folder / "index").rename(tmp_path / "moved")
    run = load(folder)
    run.notes.clear()
    assert open_data(run, None, {}).labels is None
    assert [note in one for one in run.notes] == [True]


def test_labels_that_are_no_numbers(tmp_path: Path) -> None:
    pattern = write_shards(tmp_path / "data", [[1, 0, 0]])
    folder = make_unimodal_run(tmp_path / "run", pattern, weights=None)
    shard = tmp_path / "data" / "000.tar"
    shard.write_bytes(shard.read_bytes().replace(b"1" + bytes(511), b"x" + bytes(511)))
    run = load(folder)
    run.notes.clear()
    assert open_data(run, None, {}).labels is None
    assert run.notes[0].startswith("The labels of its pictures can not be read, so nothing is said of classes: ")
