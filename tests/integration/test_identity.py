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
from support.micro_run import arguments, metrics, run, write_model
from support.run_state import last_commit, state_by_sample
from support.shard_writing import write_noise_shards

SHARDS, SAMPLES = 4, 13  # of each shard 12 can be decoded
USABLE = SHARDS * (SAMPLES - 1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def stayed(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and runs of one and of two ranks over it."""
    folder = tmp_path_factory.mktemp("stayed")
    pattern = write_noise_shards(folder / "data", [SAMPLES] * SHARDS)
    for path in (folder / "data").iterdir():
        rewrite(path, spoil_the_middle)
    for ranks in (1, 2):
        run(command(model, pattern, folder, ranks), folder, ranks=ranks)
    return folder


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


def reversed_shards(data: Path, folder: Path) -> str:
    return "::".join(str(path) for path in sorted(data.iterdir(), reverse=True))


def moved(data: Path, folder: Path) -> str:
    shutil.copytree(data, folder / "elsewhere")
    return str(folder / "elsewhere" / f"shard-{{000..{SHARDS - 1:03d}}}.tar")


def moved_and_shuffled(data: Path, folder: Path) -> str:
    """Samples within their shards, and shards on the command line."""
    moved(data, folder)
    chance = random.Random(0)
    for path in (folder / "elsewhere").iterdir():
        rewrite(path, lambda samples: chance.sample(samples, len(samples)))
    return reversed_shards(folder / "elsewhere", folder)


def command(model: str, data: str, folder: Path, ranks: int) -> list[str]:
    """Three epochs of one step over all samples that can be decoded."""
    options = {"loss": "isogclr", "isogclr_rho": 1.0, "isogclr_temperature_init": 0.05}
    options |= {"isogclr_temperature_rate": 0.002, "train_num_samples": USABLE, "batch_size": USABLE // ranks}
    return arguments(model, data, folder / "logs", f"ranks-{ranks}", epochs=3, resume="latest", **options)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("change", [reversed_shards, moved, moved_and_shuffled])
def test_state_follows_samples(
    change: Callable[[Path, Path], str], ranks: int, model: str, stayed: Path, tmp_path: Path
) -> None:
    run_folder = Path("logs") / f"ranks-{ranks}"
    shutil.copytree(stayed / run_folder, tmp_path / run_folder)
    rewind(tmp_path / run_folder)
    job = run(command(model, change(stayed / "data", tmp_path), tmp_path, ranks), tmp_path, ranks=ranks)
    assert "epoch 1, step 1" in job.text
    found, expected = (samples(folder / run_folder) for folder in (tmp_path, stayed))
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
    pattern = write_noise_shards(tmp_path / "data", [8] * 6)
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
    pattern = write_noise_shards(tmp_path / "data", [8] * 6)
    line = {"loss": "isogclr", "isogclr_rho": 1.0, "resume": "latest", "batch_size": 4}
    old = arguments(model, pattern.replace("005}", "003}"), tmp_path / "logs", "grown", **line)
    run(old, tmp_path, module="saboteurs.stopping", environment={"STOP_AT": "3"}, expected=75)
    run(arguments(model, pattern, tmp_path / "logs", "grown", **line), tmp_path)
    rows = last_commit(tmp_path / "logs" / "grown").rows
    assert rows["visits"].tolist() == [1] * 48
