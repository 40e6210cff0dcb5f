"""The state of a sample follows it by (shard, key), wherever it moves.

A step that holds the whole data set does not depend on the order of samples, and augmentation depends on seed,
epoch and row: so a run whose data is moved about between epochs must come to the same state for every sample, up
to the order of summation. An image in the middle of every shard can not be decoded, which must not shift anybody.
"""

from __future__ import annotations

import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isogclr.shard_index import ShardIndex
from micro_run import arguments, metrics, run, write_model, write_shards
from run_state import last_commit, state_by_sample

SHARDS, SAMPLES = 4, 13  # of each shard 12 can be decoded
USABLE = SHARDS * (SAMPLES - 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def data(tmp_path: Path) -> str:
    pattern = write_shards(tmp_path / "data", [SAMPLES] * SHARDS)
    for path in (tmp_path / "data").iterdir():
        rewrite(path, spoil_the_middle)
    return pattern


Members = list[tuple[str, bytes, bytes]]  # key, image, caption


def rewrite(path: Path, change: Callable[[Members], Members]) -> None:
    with tarfile.open(path) as tar:
        content = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    keys = [name.removesuffix(".png") for name in content if name.endswith(".png")]
    samples = change([(key, content[f"{key}.png"], content[f"{key}.txt"]) for key in keys])
    path.unlink()
    with tarfile.open(path, "w") as tar:
        for key, image, caption in samples:
            for name, data in ((f"{key}.png", image), (f"{key}.txt", caption)):
                file = path.parent / "member"
                file.write_bytes(data)
                tar.add(file, name)
                file.unlink()


def spoil_the_middle(samples: Members) -> Members:
    middle = len(samples) // 2
    key, image, caption = samples[middle]
    samples[middle] = key, image[: len(image) // 2], caption
    return samples


def reversed_shards(data: str, folder: Path) -> str:
    return "::".join(str(path) for path in sorted((folder / "data").iterdir(), reverse=True))


def moved(data: str, folder: Path) -> str:
    (folder / "data").rename(folder / "elsewhere")
    return data.replace(str(folder / "data"), str(folder / "elsewhere"))


def shuffled_samples(data: str, folder: Path) -> str:
    chance = random.Random(0)
    for path in (folder / "data").iterdir():
        rewrite(path, lambda samples: chance.sample(samples, len(samples)))
    return data


def everything(data: str, folder: Path) -> str:
    shuffled_samples(data, folder)
    moved(data, folder)
    return "::".join(str(path) for path in sorted((folder / "elsewhere").iterdir(), reverse=True))


def command(model: str, data: str, folder: Path, name: str, ranks: int, **flags: Any) -> list[str]:
    options = {"loss": "isogclr", "isogclr_rho": 1.0, "batch_size": USABLE // ranks, "resume": "latest", **flags}
    options |= {"train_num_samples": USABLE, "isogclr_temperature_init": 0.05, "isogclr_temperature_rate": 0.002}
    return arguments(model, data, folder / "logs", name, **options)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("change", [reversed_shards, moved, shuffled_samples, everything])
def test_state_follows_samples(
    change: Callable[[str, Path], str], ranks: int, model: str, data: str, tmp_path: Path
) -> None:
    run(command(model, data, tmp_path, "stayed", ranks, epochs=3), tmp_path, ranks=ranks)
    run(command(model, data, tmp_path, "moved", ranks, epochs=3), tmp_path, ranks=ranks)
    rewind(tmp_path / "logs" / "moved")
    job = run(command(model, change(data, tmp_path), tmp_path, "moved", ranks, epochs=3), tmp_path, ranks=ranks)
    assert "epoch 1, step 1" in job.text
    found, expected = (samples(tmp_path / "logs" / name) for name in ("moved", "stayed"))
    assert found.keys() == expected.keys()
    assert sum(row["visits"] == 3 for row in expected.values()) == USABLE
    one, other = (np.array([rows[place] for place in sorted(expected)]) for rows in (found, expected))
    assert_close(one[other["visits"] > 0], other[other["visits"] > 0])
    assert not one[other["visits"] == 0].view(np.uint8).any()


def assert_close(found: Any, expected: Any) -> None:
    """Closer to what is expected than samples are to each other, by far; nobody has another's state."""
    for name in expected.dtype.names:
        if expected.dtype[name].kind == "u":
            assert np.array_equal(found[name], expected[name]), name
            continue
        assert np.abs(found[name] - expected[name]).max() < 0.02 * expected[name].std(), name


def rewind(run_folder: Path) -> None:
    """To the end of the first epoch."""
    for path in (run_folder / "checkpoints" / "generations").iterdir():
        if path.name > "generation-00000001":
            shutil.rmtree(path)


def samples(run_folder: Path) -> dict[tuple[str, str], Any]:
    rows = last_commit(run_folder).rows
    index = ShardIndex.load(run_folder / "index")
    return {tuple(place): rows[row] for row, place in enumerate(index.locate(range(len(rows))))}


def test_added_shards_begin_as_never_visited(model: str, tmp_path: Path) -> None:
    pattern = write_shards(tmp_path / "data", [8] * 6)
    line = {"loss": "isogclr", "isogclr_rho": 1.0, "resume": "latest"}
    three, last_four = pattern.replace("005}", "002}"), pattern.replace("{000..", "{002..")
    run(arguments(model, three, tmp_path / "logs", "grown", epochs=1, **line), tmp_path)
    first = state_by_sample(tmp_path / "logs" / "grown")
    run(arguments(model, last_four, tmp_path / "logs", "grown", epochs=2, **line), tmp_path)
    second = samples(tmp_path / "logs" / "grown")
    assert len(second) == 48
    for place, row in second.items():
        if place[0] in ("shard-000.tar", "shard-001.tar"):  # not in the data any more: as they were
            assert row.tobytes() == first[place]
        else:
            assert (row["visits"], row["last_epoch"]) == (2 if place in first else 1, 2)
    shares = [one["first_visits"] for one in metrics(tmp_path / "logs" / "grown", "train")]
    assert shares[:3] == [1.0] * 3
    assert sum(shares[3:]) == pytest.approx(3.0)  # of 4 steps
    run(arguments(model, pattern, tmp_path / "logs", "grown", epochs=3, **line), tmp_path)
    visits = {place: int(row["visits"]) for place, row in samples(tmp_path / "logs" / "grown").items()}
    assert visits == {place: int(row["visits"]) + 1 for place, row in second.items()}


def test_shards_added_in_mid_epoch_are_visited_in_it(model: str, tmp_path: Path) -> None:
    pattern = write_shards(tmp_path / "data", [8] * 6)
    line = {"loss": "isogclr", "isogclr_rho": 1.0, "resume": "latest", "batch_size": 4}
    old = arguments(model, pattern.replace("005}", "003}"), tmp_path / "logs", "grown", **line)
    run(old, tmp_path, module="stopping_run", environment={"STOP_AT": "3"}, expected=75)
    run(arguments(model, pattern, tmp_path / "logs", "grown", **line), tmp_path)
    rows = last_commit(tmp_path / "logs" / "grown").rows
    assert rows["visits"].tolist() == [1] * 48
