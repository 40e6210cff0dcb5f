"""The shipped sbatch files with a model and data for tests, as environment variables and flags only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm.cluster import Job, Slurm
from support.micro_run import write_model
from support.shard_writing import write_noise_shards

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPTS = REPOSITORY / "scripts" / "slurm"
# The header asks for GPUs, CPUs and hours that a test does not have; these are options of sbatch.
OPTIONS = ("--gpus-per-node=0", "--cpus-per-task=1", "--time=10")
FLAGS: Mapping[str, Any] = {
    "epochs": 2,
    "lr": 0.001,
    "warmup": 0,
    "eps": 1e-4,
    "precision": "fp32",
    "device": "cpu",
    "workers": 0,
    "log_every_n_steps": 1,
    "save_every_n_steps": 1000,
    "report_to": "",
    "isogclr_preset": "paper",
    "isogclr_rho": 1.0,
    "isogclr_temperature_init": 0.1,
    "isogclr_temperature_rate": 0.01,
}


@dataclass(frozen=True)
class Place:
    """Model, data and runs of a test."""

    slurm: Slurm
    folder: Path
    model: str
    data: str

    @classmethod
    def create(cls, slurm: Slurm, folder: Path, sizes: list[int]) -> Place:
        return cls(slurm, folder, write_model(folder / "model"), write_noise_shards(folder / "data", sizes))

    def run_folder(self, name: str) -> Path:
        return self.folder / "logs" / name

    def environment(self, name: str, global_batch: int, **more: str) -> dict[str, str]:
        """What a user would set; the recording trainer is a wrapper, as a user may have one."""
        return {
            "ISOGCLR_HOME": str(REPOSITORY),
            "ISOGCLR_SETUP": "/dev/null",
            "ISOGCLR_PYTHON": sys.executable,
            "ISOGCLR_MODULE": "saboteurs.recording",
            "PYTHONPATH": str(REPOSITORY / "tests"),
            "RECORD_FOLDER": str(self.folder),
            "HF_HUB_OFFLINE": "1",
            "TRAIN_DATA": self.data,
            "LOGS": str(self.folder / "logs"),
            "NAME": name,
            "GLOBAL_BATCH": str(global_batch),
            "MODEL_FLAGS": f"--model {self.model}",
            **more,
        }

    def submit(
        self,
        name: str,
        *,
        nodes: int = 2,
        tasks: int = 1,
        global_batch: int = 8,
        script: str = "train_isogclr.sbatch",
        options: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        **flags: Any,
    ) -> Job:
        """Submit a shipped file for this many nodes and tasks a node."""
        arguments = []
        for flag, value in {**FLAGS, **flags}.items():
            if value is not None:
                arguments += ["--" + flag.replace("_", "-"), str(value)]
        return self.slurm.submit(
            SCRIPTS / script,
            *arguments,
            options=[f"--nodes={nodes}", f"--ntasks-per-node={tasks}", *OPTIONS, *options],
            environment=self.environment(name, global_batch, **(environment or {})),
        )
