"""`train_unimodal.sbatch`: what it starts, what it refuses, and a run on two nodes."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from slurm.cluster import Job, Slurm
from slurm.training_job import OPTIONS, REPOSITORY, SCRIPTS
from support.micro_run import command_line, metrics, stored
from support.picture_sets import write_folders

SMALL = {
    **{"backbone": "tiny", "projector": "16-8", "image_size": 8, "epochs": 2, "warmup_epochs": 0, "lr": 0.1},
    **{"workers": 0, "device": "cpu", "report_to": "", "log_every_n_steps": 1, "save_every_n_steps": 1000},
}
STUB = {"ISOGCLR_MODULE": "support.slurm_stub"}


def submit(slurm: Slurm, folder: Path, *flags: str, **environment: str) -> Job:
    site = {
        "ISOGCLR_HOME": str(REPOSITORY),
        "ISOGCLR_SETUP": "/dev/null",
        "ISOGCLR_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY / "tests"),
        "LOGS": str(folder / "logs"),
    }
    return slurm.submit(
        SCRIPTS / "train_unimodal.sbatch",
        *flags,
        options=["--nodes=2", "--ntasks-per-node=1", *OPTIONS],
        environment={**site, **environment},
    )


@pytest.mark.parametrize(
    ("preset", "batch", "measured"),
    [("cifar100-lt", 64, " <--val-data> </data> <--val-frequency> <10>"), ("imagenet100", 128, "")],
)
def test_the_recipe(slurm: Slurm, tmp_path: Path, preset: str, batch: int, measured: str) -> None:
    job = submit(slurm, tmp_path, "--lr", "0.3", DATA="/data", PRESET=preset, SEED="3", **STUB)
    assert job.wait(60) == ("COMPLETED", "0:0"), job.text
    lines = re.findall(r"called with (.*)$", job.text, re.MULTILINE)
    assert len(lines) == 2
    assert lines[0] == (
        f"<--logs> <{tmp_path}/logs> <--name> <{preset}-isogclr-seed3> <--resume> <latest> <--preset> <{preset}> "
        f"<--loss> <isogclr> <--data> </data> <--batch-size> <{batch}> <--seed> <3> <--workers> <1> "
        f"<--save-every-n-steps> <1000> <--report-to> <tensorboard>{measured} <--lr> <0.3>"
    )


def test_what_is_refused(slurm: Slurm, tmp_path: Path) -> None:
    job = submit(slurm, tmp_path, **STUB)
    assert job.wait(60) == ("FAILED", "2:0"), job.text
    assert "DATA is not set, expected the pictures to learn from" in job.text


@pytest.mark.slow
def test_a_run_on_two_nodes(slurm: Slurm, tmp_path: Path) -> None:
    data = write_folders(tmp_path / "data", {"ant": 16, "bee": 16})
    place = {"DATA": str(data), "VAL_DATA": str(data), "PRESET": "cifar10", "NAME": "a", "GLOBAL_BATCH": "8"}
    job = submit(slurm, tmp_path, *command_line(SMALL), **place)
    assert job.wait() == ("COMPLETED", "0:0"), job.text
    folder = tmp_path / "logs" / "a"
    assert (stored(folder)["visits"] == 2).all()
    assert [one["epoch"] for one in metrics(folder, "val")] == [0, 2]
