"""Flags of open_clip that change a run change ours in the same way: both programs run with them, side by side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from support.both_programs import STEPS_PER_EPOCH, WHOLE_IMAGE, Case, Runs, checkpoint, scalars
from support.micro_run import arguments, metrics, run
from support.run_state import assert_same_end, last_commit
from support.shard_writing import WORDS, write_noise_shards


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("flags"))


def assert_same_training(ours: Path, theirs: Path) -> None:
    for name in ("loss", "lr", "scale"):
        found = scalars(ours, name)
        assert found
        assert found == pytest.approx(scalars(theirs, name), rel=1e-6, abs=0)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir() if path.is_file())


COMBINATIONS = [
    Case(
        "locked-image",
        flags={
            "lock_image": True,
            "lock_image_unlocked_groups": 1,
            "grad_clip_norm": 0.05,
            "skip_scheduler": True,
            "beta1": 0.8,
            "wd": 0.5,
            "grad_checkpointing": True,
        },
    ),
    Case(
        "locked-text",
        ranks=2,
        flags={
            "lock_text": True,
            "lock_text_freeze_layer_norm": False,
            "lr_scheduler": "const",
            "ddp_static_graph": True,
            "force_patch_dropout": 0.0,
        },
    ),
    Case(
        "timm",
        flags={
            "opt": "timm/lamb",
            "eps": 1e-6,
            "lr_scheduler": "const-cooldown",
            "epochs_cooldown": 1,
            "lr_cooldown_end": 0.0005,
            "lr_cooldown_power": 2.0,
            "force_image_size": 32,
            "force_context_length": 6,
            "image_mean": [0.1, 0.2, 0.3],
            "image_std": [0.5, 0.6, 0.7],
            "image_interpolation": "bilinear",
        },
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", COMBINATIONS, ids=lambda case: case.name)
def test_combinations_of_flags(runs: Runs, case: Case) -> None:
    ours, theirs = runs.both(case)
    assert_same_training(ours, theirs)
    mine, other = checkpoint(ours), checkpoint(theirs)
    assert [group["params"] for group in mine["optimizer"]["param_groups"]] == [
        group["params"] for group in other["optimizer"]["param_groups"]
    ]
    for name, value in other["state_dict"].items():
        assert mine["state_dict"][name].shape == value.shape


def test_locked_towers_stay_as_they_were(runs: Runs) -> None:
    ours, _ = runs.both(COMBINATIONS[0])
    first, last = (checkpoint(ours, epoch)["state_dict"] for epoch in (1, 2))
    unchanged = {name for name in first if torch.equal(first[name], last[name])}
    assert "visual.conv1.weight" in unchanged
    assert "visual.proj" not in unchanged  # the unlocked group
    assert not any(name.startswith("text.transformer.encoder") and "key.bias" not in name for name in unchanged)


def test_the_schedules_that_were_asked_for(runs: Runs) -> None:
    skipped, constant, cooled = (scalars(runs.both(case)[0], "lr") for case in COMBINATIONS)
    assert list(skipped.values()) == pytest.approx([0.001] * 2 * STEPS_PER_EPOCH)
    assert list(constant.values())[:4] == pytest.approx([0.001 / 3, 0.002 / 3, 0.001, 0.001])
    assert cooled[STEPS_PER_EPOCH] == pytest.approx(0.001)
    assert 0.0005 < cooled[2 * STEPS_PER_EPOCH - 1] < 0.00051


@pytest.fixture(scope="module")
def validation(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_noise_shards(tmp_path_factory.mktemp("val"), [24], seed=9, prefix="val")


def results(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "checkpoints" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def validated(runs: Runs, validation: str) -> tuple[Path, Path]:
    flags = {"val_data": validation, "val_num_samples": 24, "save_frequency": 2, "save_most_recent": True}
    return runs.both(Case("validated", ranks=2, flags=flags))


@pytest.mark.slow
def test_validation_is_open_clips(validated: tuple[Path, Path]) -> None:
    ours, theirs = validated
    found, expected = results(ours), results(theirs)
    assert [record["epoch"] for record in expected] == [1, 2]
    assert found == [pytest.approx(record, rel=1e-5) for record in expected]
    kept = metrics(ours, "val")
    assert [record["step"] for record in kept] == [6, 12]
    for record, result in zip(kept, found, strict=True):
        assert {name: record[name] for name in result} == result
        assert {f"{way}_R@{k}" for way in ("image_to_text", "text_to_image") for k in (1, 5, 10)} <= set(record)
    assert "image_to_text_R@1" in (ours / "out.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_same_files_are_kept(runs: Runs, validated: tuple[Path, Path]) -> None:
    assert files(validated[0]) == files(validated[1]) == ["epoch_2.pt", "epoch_latest.pt", "results.jsonl"]
    deleting = Case("deleting", flags={"delete_previous_checkpoint": True, "epochs": 3})
    ours, theirs = runs.both(deleting)
    assert files(ours) == files(theirs) == ["epoch_3.pt"]


@pytest.mark.slow
def test_evaluation_only(runs: Runs, validated: tuple[Path, Path], validation: str, tmp_path: Path) -> None:
    """Of a checkpoint of two ranks, on one."""
    latest = validated[0] / "checkpoints" / "epoch_latest.pt"
    flags = {"val_data": validation, "val_num_samples": 24, "resume": latest, "epochs": 2}
    run(arguments(runs.models[False], None, tmp_path, "evaluation", **flags), tmp_path)
    (found,) = results(tmp_path / "evaluation")
    assert found == pytest.approx(results(validated[0])[-1], rel=1e-5)
    (record,) = metrics(tmp_path / "evaluation", "val")
    assert (record["epoch"], record["text_to_image_R@5"]) == (2, found["text_to_image_R@5"])
    assert files(tmp_path / "evaluation") == ["results.jsonl"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("table")
    generator = np.random.default_rng(0)
    lines = ["picture;words"]
    for number in range(70):
        path = folder / f"{number}.png"
        Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
        lines.append(f"{path};{' '.join(generator.choice(WORDS, 3))}")
    (folder / "table.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "table.csv"


@pytest.mark.slow
def test_a_table_on_two_ranks(runs: Runs, table: Path) -> None:
    """open_clip shuffles with torch's DistributedSampler there, whose seed is 0 whatever --seed says."""
    columns = {"csv_separator": ";", "csv_img_key": "picture", "csv_caption_key": "words"}
    flags = {"train_data": table, "train_num_samples": None, "seed": 0, **columns}
    ours, theirs = runs.both(Case("table", ranks=2, flags=flags))
    assert len(scalars(ours, "loss")) == 2 * 4
    assert_same_training(ours, theirs)


@pytest.mark.slow
def test_synthetic_data(runs: Runs) -> None:
    flags = {"train_data": None, "dataset_type": "synthetic", "train_num_samples": 40, "aug_cfg": WHOLE_IMAGE}
    ours, theirs = runs.both(Case("synthetic", flags=flags))
    assert len(scalars(ours, "loss")) == 2 * 5
    assert_same_training(ours, theirs)


@pytest.mark.slow
def test_the_folder_of_a_run(runs: Runs, tmp_path: Path) -> None:
    """A name by default, a log of each node, the code; batches that fill no step are left out."""
    line = arguments(
        runs.models[False],
        runs.data,
        tmp_path / "logs",
        None,
        log_local=True,
        copy_codebase=True,
        debug=True,
        lr=0.002,
        train_num_samples=16,
        workers=2,
        precision=None,
        log_every_n_steps=2,
    )
    run(line, tmp_path)
    (folder,) = (tmp_path / "logs").iterdir()
    model = runs.models[False].replace("/", "-")
    assert folder.name[19:] == f"-model_{model}-lr_0.002-b_8-j_2-p_fp32"
    assert "DEBUG" in (folder / "out-0").read_text(encoding="utf-8")
    assert "--precision is fp32" in (folder / "out-0").read_text(encoding="utf-8")
    assert (folder / "code" / "training" / "main.py").is_file()
    assert (folder / "code" / "isogclr" / "objective.py").is_file()
    written = dict(line.split(": ", 1) for line in (folder / "params.txt").read_text(encoding="utf-8").splitlines())
    assert (written["lr"], written["batch_size"], written["precision"]) == ("0.002", "8", "fp32")


@pytest.mark.slow
def test_nothing_is_stored_if_nothing_is_to_be(runs: Runs, tmp_path: Path) -> None:
    """And a timm optimizer has its own ε if none is given."""
    line = arguments(runs.models[False], runs.data, Path("none"), "x", train_num_samples=16, opt="timm/lamb")
    (tmp_path / "scratch").mkdir()
    line = [sys.executable, "-m", "training.main", *line]
    variables = {**os.environ, "TMPDIR": str(tmp_path / "scratch"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(line, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Train Epoch: 0" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["scratch"]


@pytest.mark.slow
def test_layers_that_open_clip_can_not_unlock(runs: Runs, tmp_path: Path) -> None:
    flags = {"lock_text": True, "lock_text_unlocked_layers": 1}
    job = run(arguments(runs.models[False], runs.data, tmp_path, "x", **flags), tmp_path, expected=1)
    assert "ERROR | rank 0: --lock-text-unlocked-layers 1: open_clip can not unlock some layers" in job.text
    assert "Traceback" not in job.text


@pytest.mark.slow
def test_a_compiled_model(runs: Runs, tmp_path: Path) -> None:
    """The same losses, and checkpoints whose names have no trace of it."""
    folders = {}
    for module in ("training.main", "saboteurs.compiling"):
        flags = {
            "torchcompile": module == "saboteurs.compiling",
            "train_num_samples": 24,
            "report_to": "tensorboard",
        }
        run(arguments(runs.models[False], runs.data, tmp_path, module, **flags), tmp_path, module=module)
        folders[module] = tmp_path / module
    plain, compiled = folders.values()
    assert checkpoint(compiled, 1)["state_dict"].keys() == checkpoint(plain, 1)["state_dict"].keys()
    assert scalars(compiled, "loss") == pytest.approx(scalars(plain, "loss"), rel=1e-5)
    assert "Compiling model" in (compiled / "out.log").read_text(encoding="utf-8")


def test_vicreg_of_pairs(runs: Runs, tmp_path: Path) -> None:
    """In processes of its own: it learns, counts visits like every loss without state, and resumes bit for bit."""
    lines = {
        name: arguments(
            runs.models[False],
            runs.data,
            tmp_path / "logs",
            name,
            loss="vicreg",
            vicreg_covariance_weight=2,
            epochs=2,
            save_every_n_steps=1,
        )
        for name in ("whole", "parts")
    }
    for line in lines.values():
        run(line, tmp_path)
    whole, parts = (tmp_path / "logs" / name for name in lines)
    values = [record["loss"] for record in metrics(whole, "train")]
    assert values[-1] < values[0]
    assert last_commit(whole).rows["visits"].max() == 2
    shutil.rmtree(last_commit(parts).path)  # as if the run had been killed before it
    run([*lines["parts"], "--resume", "latest"], tmp_path)
    assert_same_end(parts, whole)


@pytest.mark.slow
def test_zero_shot_imagenet_and_a_remote_copy(runs: Runs, tmp_path: Path) -> None:
    """Two images of the first of ImageNet's 1,000 classes; the copy has what the run has left."""
    images = tmp_path / "imagenet" / "n01440764"
    images.mkdir(parents=True)
    for number in range(2):
        Image.new("RGB", (20, 16), (90 * number, 0, 0)).save(images / f"{number}.png")
    flags = {"imagenet_val": images.parent, "zeroshot_frequency": 1, "train_num_samples": 16}
    copy = {"remote_sync": tmp_path / "copy", "remote_sync_protocol": "fsspec"}
    run(arguments(runs.models[False], runs.data, tmp_path / "logs", "x", **flags, **copy), tmp_path)
    (record,) = metrics(tmp_path / "logs" / "x", "val")
    assert 0 <= record["imagenet-zeroshot-val-top1"] <= record["imagenet-zeroshot-val-top5"] <= 1
    copied = tmp_path / "copy" / "x" / "checkpoints"
    assert (copied / "epoch_1.pt").read_bytes() == (tmp_path / "logs/x/checkpoints/epoch_1.pt").read_bytes()
    assert (copied / "results.jsonl").is_file()
