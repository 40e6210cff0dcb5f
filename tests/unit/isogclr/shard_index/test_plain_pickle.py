"""Plain data comes out of a pickle, and nothing in it is run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isogclr.shard_index.plain_pickle import ArrayPlace, PlainPickleError, read_plain
from support.picture_sets import random_pixels, write_cifar10

PIXELS = random_pixels(10)


@pytest.fixture
def official(tmp_path: Path) -> Path:
    return write_cifar10(tmp_path, PIXELS, [3] * 10) / "data_batch_2"


def pixels_at(path: Path, place: ArrayPlace) -> np.ndarray[Any, Any]:
    return np.memmap(path, dtype=np.uint8, mode="r", offset=place.start, shape=place.shape)


def test_the_file_of_the_tests_is_one_that_pickle_reads(official: Path) -> None:
    """Written instruction by instruction, as Python 2 did; the judge is Python's own reader."""
    content = pickle.loads(official.read_bytes(), encoding="latin-1")
    assert np.array_equal(content["data"].reshape(-1, 3, 32, 32), PIXELS[2:4])
    assert content["labels"] == [3, 3]


def test_the_same_comes_out_as_from_pickle(official: Path) -> None:
    expected = pickle.loads(official.read_bytes(), encoding="latin-1")
    found = read_plain(official)
    assert np.array_equal(pixels_at(official, found.pop("data")), expected.pop("data"))
    assert found == expected


@pytest.mark.parametrize("protocol", [3, 4])
def test_files_that_were_pickled_again_by_python_3(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "again"
    data = PIXELS.reshape(10, -1)
    path.write_bytes(pickle.dumps({b"data": data, "labels": [0, 300, 70_000], "none": (None, True)}, protocol))
    found = read_plain(path)
    assert np.array_equal(pixels_at(path, found.pop("data")), data)
    assert found == {"labels": [0, 300, 70_000], "none": (None, True)}


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        import os  # noqa: PLC0415

        return os.system, (f"touch {self.witness}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_hostile_file_runs_nothing(tmp_path: Path, protocol: int) -> None:
    path, witness = tmp_path / "hostile", tmp_path / "witness"
    path.write_bytes(pickle.dumps({"labels": [Hostile(witness)]}, protocol))
    with pytest.raises(PlainPickleError, match=r"posix\.system, which CIFAR's own files do not|the instruction"):
        read_plain(path)
    assert not witness.exists()
    pickle.loads(path.read_bytes())
    assert witness.exists(), "the file was not hostile: the test shows nothing"


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02cbuiltins\neval\nU\x011\x85R.",
        b"\x80\x02cnumpy\nfromfile\nU\x01x\x85R.",
        b"\x80\x02cnumpy\nndarray\nK\x00\x85R.",  # a known name, called in another way
        b"\x80\x02cnumpy\ndtype\n.",
        b"\x80\x02}N}b.",
        b"\x80\x02K\x01K\x02.",
        b"\x80\x02K\x01e.",
        b"\x80\x02h\x05.",
        b"\x80\x02N}s.",
        b"\x80\x02P1\n.",
        b"(lp0\n.",
        b"",
    ],
)
def test_nonsense_is_an_error(tmp_path: Path, program: bytes) -> None:
    path = tmp_path / "nonsense"
    path.write_bytes(program)
    with pytest.raises(PlainPickleError):
        read_plain(path)


def test_every_cut_is_noticed(official: Path) -> None:
    content = official.read_bytes()
    for length in [*range(0, len(content), 97), len(content) - 1]:
        official.write_bytes(content[:length])
        with pytest.raises(PlainPickleError):
            read_plain(official)


def test_an_array_must_fill_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "wide"
    path.write_bytes(pickle.dumps({"data": np.zeros((8, 3072), dtype=np.int16)}, 3))
    with pytest.raises(PlainPickleError, match="uint8"):
        read_plain(path)
