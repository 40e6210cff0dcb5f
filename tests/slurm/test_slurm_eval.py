"""eval.sbatch on a real Slurm: a checkpoint, a data set in a real format, a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm.cluster import Slurm
from slurm.training_job import SCRIPTS, Place
from support.evaluation_data import pairs, save_checkpoint, tiny_model, write_flickr30k


@pytest.mark.slow
def test_evaluation(slurm: Slurm, tmp_path: Path) -> None:
    write_flickr30k(tmp_path / "data" / "flickr30k", pairs(6))
    save_checkpoint(tmp_path / "run" / "checkpoints" / "epoch_1.pt", tiny_model().model)
    environment = Place(slurm, tmp_path, "", "").environment(
        "",
        1,
        DATA_ROOT=str(tmp_path / "data"),
        CHECKPOINTS=f"{tmp_path}/*/checkpoints/epoch_*.pt",
        OUTPUT=str(tmp_path / "results"),
        DEVICE="cpu",
    )
    options = ["--gpus-per-node=0", "--cpus-per-task=1", "--time=10"]
    arguments = ("--dataset", "flickr30k", "--quiet")
    job = slurm.submit(SCRIPTS / "eval.sbatch", *arguments, options=options, environment=environment)
    assert job.wait() == ("COMPLETED", "0:0"), job.text
    assert "flickr30k" in (tmp_path / "results" / "table.csv").read_text().lower()
