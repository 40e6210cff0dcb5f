"""`python -m training.unimodal`: whole runs on folders of pictures: killed, stopped, other ranks, bad data."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isogclr.pictures.long_tail import LongTail
from saboteurs.recording import recorded
from support.micro_run import command_line, ended, metrics, run, start, stored, weights
from support.picture_sets import write_folders, write_shards
from support.run_state import assert_same_end, last_commit
from training import unimodal

PROGRAM = unimodal.__name__
COUNTS = {"ant": 24, "bee": 24, "cat": 16}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 pictures of three classes."""
    return write_folders(tmp_path_factory.mktemp("pictures") / "train", COUNTS)


def line(data: object, logs: Path, name: str, **flags: Any) -> list[str]:
    return command_line(
        {
            "data": data,
            "logs": logs,
            "name": name,
            "backbone": "tiny",
            "projector": "16-8",
            "image_size": 8,
            "batch_size": 8,
            "epochs": 2,
            "warmup_epochs": 0,
            "lr": 0.1,
            "workers": 0,
            "device": "cpu",
            "log_every_n_steps": 1,
            **flags,
        }
    )


def test_a_run_and_what_it_leaves(tmp_path: Path, pictures: Path) -> None:
    """TensorBoard, metrics, configuration, the facts of a checkpoint, the long tail; kNN before the first step."""
    test = write_folders(tmp_path / "test", {"bee": 3, "ant": 5})
    flags = {"val_data": test, "imbalance": 4, "report_to": "tensorboard", "imbalance_seed": 7, "accum_freq": 2}
    job = run(line(pictures, tmp_path, "a", batch_size=4, **flags), tmp_path, module=PROGRAM)
    folder = tmp_path / "a"
    assert [one["epoch"] for one in metrics(folder, "val")] == [0, 1, 2]
    assert all(0 <= one["knn_top1"] <= 1 for one in metrics(folder, "val"))
    assert "Eval Epoch: 0 knn_top1: " in job.text
    assert list((folder / "tensorboard").iterdir())
    kept = LongTail.load(folder / "long_tail.json")
    assert (kept.kept, kept.seed) == ((24, 12, 6), 7)
    visited = np.flatnonzero(stored(folder)["visits"])
    assert set(visited.tolist()) <= set(kept.rows)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    expected = {
        "kind": "unimodal",
        "directions": ["image"],
        "data": str(pictures),
        "split": "train",
        "label": "cls",
    }
    assert {name: config[name] for name in expected} == expected
    content = torch.load(folder / "checkpoints" / "epoch_2.pt", weights_only=True)
    facts = content["isogclr"]
    shown = {"backbone": "tiny", "stem": "cifar", "projector": "16-8", "image_size": 8, "classes": [*COUNTS]}
    assert {name: facts[name] for name in shown} == shown
    assert (facts["kind"], facts["loss"], facts["imbalance"], facts["long_tail_seed"]) == (
        *("unimodal", "isogclr"),
        *(4.0, 7),
    )
    assert {name.partition(".")[0] for name in content["state_dict"]} == {"backbone", "projector"}
    assert metrics(folder, "distribution")


@pytest.mark.slow
def test_a_run_that_is_stopped_and_killed_ends_as_the_one_that_was_not(tmp_path: Path, pictures: Path) -> None:
    """SIGTERM: a commit and exit code 75. SIGKILL: back to the last commit. Two views by workers."""
    flags = {"resume": "latest", "save_every_n_steps": 3, "epochs": 3, "workers": 2, "seed": 5, "opt": "lars"}
    test = {"val_data": pictures, "val_frequency": 3}
    run(line(pictures, tmp_path, "whole", **flags, **test), tmp_path, module=PROGRAM)
    command = line(pictures, tmp_path, "killed", **flags, **test)
    slow = {"PROGRAM": PROGRAM, "RECORD_FOLDER": str(tmp_path), "STEP_SECONDS": "0.1"}
    with ended(start(command, tmp_path, module="saboteurs.recording", environment=slow)) as job:
        job.wait_for("Train Epoch: 0 [32/64")  # the step after the commit
        job.kill(signal.SIGTERM)
        assert job.wait() == [75]
    stopped = last_commit(tmp_path / "killed").training["step"]
    assert 3 < stopped < 24
    with ended(start(command, tmp_path, module="saboteurs.recording", environment=slow)) as job:
        job.wait_for("Committed step 12 ")
        job.kill()
    run(command, tmp_path, module=PROGRAM)
    assert_same_end(tmp_path / "killed", tmp_path / "whole")


@pytest.mark.slow
def test_another_number_of_ranks_sees_each_picture_once(tmp_path: Path, pictures: Path) -> None:
    variables = {"PROGRAM": PROGRAM, "RECORD_FOLDER": str(tmp_path)}
    flags = {"resume": "latest", "epochs": 1, "batch_size": 4, "loss": "sogclr"}
    command = line(pictures, tmp_path, "a", **flags)
    slow = {**variables, "STEP_SECONDS": "0.2"}
    with ended(start(command, tmp_path, ranks=2, module="saboteurs.recording", environment=slow)) as job:
        job.wait_for("Train Epoch: 0 [16/64")
        job.kill(signal.SIGTERM)
        assert job.wait() == [75, 75]
    before = recorded(tmp_path, 2)
    seen = [row for rank in before for step in rank for row in step]
    assert 16 <= len(seen) < 64
    for rank in range(2):
        (tmp_path / f"rank-{rank}.jsonl").unlink()
    job = run(command, tmp_path, module="saboteurs.recording", environment=variables)
    assert "The set-up has changed (world_size 2 → 1)" in job.text
    rest = [row for step in recorded(tmp_path, 1)[0] for row in step]
    assert Counter([*seen, *rest]) == Counter(range(64))
    assert (stored(tmp_path / "a")["visits"] == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["isogclr", "vicreg"])
def test_two_ranks_are_one(tmp_path: Path, pictures: Path, loss: str) -> None:
    """With a backbone without batch norm, whose statistics would be those of a rank."""
    flags = {"backbone": "tiny-groupnorm", "projector": "8", "epochs": 1, "loss": loss, "opt": "sgd", "lr": 0.01}
    run(line(pictures, tmp_path, "one", **flags), tmp_path, module=PROGRAM)
    run(line(pictures, tmp_path, "two", **{**flags, "batch_size": 4}), tmp_path, ranks=2, module=PROGRAM)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-4, msg=name)
    rows, others = stored(tmp_path / "one"), stored(tmp_path / "two")
    for name in rows.dtype.names:
        np.testing.assert_allclose(others[name], rows[name], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("no labels", "--val-data needs the class of every picture, and .* has none"),
        ("one class", "--val-data needs two classes or more, and all 4 pictures"),
        ("other classes", "--val-data: .* has 2 classes that the training data has not, like dog, elk"),
        ("one class to keep", "--imbalance needs two classes or more"),
    ],
)
def test_data_without_what_is_asked_of_it(tmp_path: Path, pictures: Path, kind: str, said: str) -> None:
    """One line, exit code 1, and the name is free again."""
    flags: dict[str, Any] = {"val_data": tmp_path / "test"}
    data: Path = pictures
    if kind == "no labels":
        flags["val_data"] = write_shards(tmp_path / "test", [[None] * 4])
    elif kind == "one class":
        write_folders(tmp_path / "test", {"ant": 4})
    elif kind == "other classes":
        write_folders(tmp_path / "test", {"dog": 2, "elk": 2})
    else:
        data, flags = write_folders(tmp_path / "test", {"ant": 16}), {"imbalance": 10}
    job = run(line(data, tmp_path, "a", **flags), tmp_path, module=PROGRAM, expected=1)
    errors = [text for text in job.text.splitlines() if "| ERROR |" in text]
    assert len(errors) == 1
    assert "Traceback" not in job.text
    assert re.search(said, errors[0]), errors[0]
    assert not (tmp_path / "a" / "out.log").exists()
