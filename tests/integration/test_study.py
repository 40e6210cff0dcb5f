"""A study in small: real runs of the trainer, one table, nothing twice."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.data_scripts import SCRIPTS, script
from support.micro_run import write_model
from support.shard_writing import write_noise_shards

grid, runs = (script(name, "study") for name in ("grid", "training_runs"))
pytestmark = pytest.mark.slow


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Noise, as retrieval and with a class for every sample."""
    monkeypatch.syspath_prepend(SCRIPTS / "study")  # processes find the modules there too
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path / "data" / "micro"
    for split, sizes in (("train", [16, 16]), ("validation", [16]), ("test", [8, 8])):
        write_noise_shards(folder, sizes, seed=len(split), prefix=split)
    for shard in folder.glob("*.tar"):
        with tarfile.open(shard) as archive:
            keys = [member.name.removesuffix(".txt") for member in archive if member.name.endswith(".txt")]
        with tarfile.open(shard, "a") as archive:
            for number, key in enumerate(keys):
                label = shard.with_name("label")
                label.write_text(str(number % 3), encoding="ascii")
                archive.add(label, f"{key}.cls")
    classes = {"names": ["red", "green", "blue"], "train_counts": [12, 10, 10], "templates": ["small {}", "old {}"]}
    (folder / "classes.json").write_text(json.dumps(classes), encoding="utf-8")
    return folder.parent


def data_set(model: str, task: str, fixed: bool) -> Any:
    flags = {"model": model, "batch_size": 8, "epochs": 2, "lr": 1e-3, "warmup": 0, "aug_cfg": ("scale=(1,1)",)}
    return grid.DataSet("micro", "micro", task, flags, fixed_pictures=fixed)


def one(data_set: Any, part: str, **changes: Any) -> Any:
    setting = {"isogclr_rho": 1.0, "isogclr_temperature_optimizer": "log"}
    values = {"setting": setting, "seed": 1, "split": "validation", "curve": True, "semantics": True}
    return grid.Run(part=part, data_set=data_set, method="isogclr", loss="isogclr", **{**values, **changes})


def values(results: Any, part: str) -> dict[tuple[str, str], float]:
    return {(row["epoch"], row["metric"]): float(row["value"]) for row in results.rows if row["part"] == part}


def test_kept_examples_change_nothing(data: Path, tmp_path: Path) -> None:
    model, table = write_model(tmp_path / "model"), tmp_path / "results.csv"
    results = runs.Results(table)
    plain, kept = (data_set(model, "retrieval", fixed) for fixed in (False, True))
    runs.execute([one(plain, "plain"), one(kept, "kept")], results, data, tmp_path / "work", jobs=2)
    found = values(results, "kept")
    assert found == pytest.approx(values(results, "plain"), rel=0, abs=0, nan_ok=True)
    assert {epoch for epoch, _ in found} == {"1", "2", ""}
    assert 0 <= found["2", "mean_recall"] <= 100
    assert found["", "image_temperature_min"] <= found["", "image_temperature_q50"]
    assert "near_neighbours" in " ".join(metric for _, metric in found)
    assert list((tmp_path / "work").iterdir()) == []  # nothing of a finished run is left

    before = table.read_bytes()
    again = runs.Results(table)
    runs.execute([one(plain, "plain"), one(kept, "kept")], again, data, tmp_path / "nowhere", jobs=1)
    assert table.read_bytes() == before
    assert not (tmp_path / "nowhere").exists()


def test_zero_shot(data: Path, tmp_path: Path) -> None:
    results = runs.Results(tmp_path / "results.csv")
    run = one(data_set(write_model(tmp_path / "model"), "zero-shot", True), "classes", split="test")
    runs.execute([run], results, data, tmp_path / "work", jobs=1)
    found = values(results, "classes")
    classes = [found["2", name] for name in ("head", "middle", "tail")]  # one class each
    assert found["2", "mean_per_class"] == pytest.approx(np.mean(classes), abs=1e-3)
    assert found["2", "accuracy"] == pytest.approx(np.dot(classes, [6, 6, 4]) / 16, abs=1e-3)
    assert ("", "image_temperature_against_class_size") in found


def test_a_run_that_fails_says_why(data: Path, tmp_path: Path) -> None:
    results = runs.Results(tmp_path / "results.csv")
    noise = data_set(write_model(tmp_path / "model"), "retrieval", True)
    bad, good = one(noise, "bad", setting={"isogclr_rho": -1}), [one(noise, "good", seed=seed) for seed in range(9)]
    with pytest.raises(SystemExit, match=r"(?s)failed with code 2.*rho is -1"):
        runs.execute([bad, *good], results, data, tmp_path / "work", jobs=1)
    assert len({row["seed"] for row in results.rows}) < 3  # the others did not begin


def test_pictures_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of `training.unimodal` on folders, long-tailed, with linear evaluation and neighbours."""
    monkeypatch.syspath_prepend(SCRIPTS / "study")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    generator = np.random.default_rng(0)
    for part, count in (("tune-train", 24), ("tune-test", 6)):
        for number, name in enumerate(("blue", "green", "red")):
            folder = tmp_path / "data" / "micro" / part / name
            folder.mkdir(parents=True)
            for picture in range(count):
                pixels = generator.integers(0, 60, (32, 32, 3), dtype=np.uint8)
                pixels[:, :, number] += 150
                Image.fromarray(pixels).save(folder / f"{picture:03d}.png")
    flags = {
        "backbone": "tiny",
        "projector": "16-16",
        "image_size": 32,
        "batch_size": 8,
        "epochs": 1,
        "warmup_epochs": 0,
        "imbalance": 4,
    }
    data_set = grid.DataSet("micro", "micro", "unimodal", flags)
    one_run = grid.Run("tune", data_set, "simclr", "simclr", {"lr": 0.001}, 1, "validation")
    results = runs.Results(tmp_path / "results.csv")
    runs.execute([one_run], results, tmp_path / "data", tmp_path / "work", 1)
    found = values(results, "tune")
    assert {"accuracy", "mean_per_class", "knn", "head", "tail"} <= {metric for _, metric in found}
    assert found["1", "knn"] > 60  # three plain colours; the views differ in little else
    assert data_set.metric == "mean_per_class"
