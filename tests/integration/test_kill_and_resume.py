"""kill -9 at random times, resumed by `--resume latest`: the run ends as if nobody had killed it, bit for bit."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from support.micro_run import Job, arguments, metrics, run, start, write_csv, write_model
from support.run_state import assert_same_end
from support.shard_writing import write_noise_shards

TRAINED = "Train Epoch:"
EVEN, UNEVEN = (16, 16, 16, 16), (9, 30, 12, 25)  # of the uneven ones some workers begin again, others never end


@dataclass(frozen=True)
class Case:
    """A set-up that is killed."""

    name: str
    loss: str
    ranks: int = 1
    kills: int = 3
    sizes: tuple[int, ...] = EVEN
    kind: str = "shards"
    validates: bool = False
    flags: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("momentum", "isogclr", kills=4, flags={"save_every_n_steps": 1}),
    Case(
        "adam-2-ranks",
        "isogclr",
        ranks=2,
        flags={"isogclr_temperature_optimizer": "adam", "workers": 2, "batch_size": 4, "save_every_n_steps": 2},
    ),
    Case(
        "global-cosine-accumulated",
        "isogclr",
        flags={
            "isogclr_temperature_scope": "global",
            "isogclr_gamma_schedule": "cosine",
            "workers": 2,
            "accum_freq": 2,
            "batch_size": 4,
            "save_every_n_steps": 3,
        },
    ),
    Case("csv", "sogclr", ranks=2, kind="csv", flags={"accum_freq": 2, "batch_size": 2, "save_every_n_steps": 2}),
    Case(
        "resampled", "isogclr", flags={"dataset_resampled": True, "train_num_samples": 64, "save_every_n_steps": 2}
    ),
    Case(
        "resampled-clip",
        "clip",
        ranks=2,
        flags={
            "dataset_resampled": True,
            "train_num_samples": 64,
            "workers": 2,
            "batch_size": 4,
            "save_every_n_steps": 1,
        },
    ),
    Case("scaler", "isogclr", validates=True, flags={"precision": "amp", "save_every_n_steps": 3}),
    Case(
        "uneven",
        "isogclr",
        ranks=2,
        sizes=UNEVEN,
        validates=True,
        flags={"workers": 2, "batch_size": 4, "save_every_n_steps": 1},
    ),
    Case("by-epoch-only", "isogclr", flags={"workers": 2, "epochs": 6, "batch_size": 16}),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"), dropout=0.1)


def command(case: Case, model: str, folder: Path, name: str) -> list[str]:
    if case.kind == "csv":
        data = write_csv(folder / "data", sum(case.sizes))
    else:
        data = write_noise_shards(folder / "data", case.sizes)
    flags: dict[str, Any] = {"epochs": 3, **case.flags}
    if case.loss == "isogclr":
        flags["isogclr_rho"] = 1.0
    if case.validates:
        flags["val_data"] = write_noise_shards(folder / "validation", [8], seed=1, prefix="val")
    return arguments(model, data, folder / "logs", name, loss=case.loss, resume="latest", **flags)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_killed_runs_end_as_the_run_that_was_not(case: Case, model: str, tmp_path: Path) -> None:
    run(command(case, model, tmp_path, "whole"), tmp_path, ranks=case.ranks)
    steps = len(metrics(tmp_path / "logs" / "whole", "train"))
    killed = command(case, model, tmp_path, "killed")
    chance = random.Random(case.name)
    hits = 0
    for number in range(case.kills):
        job = start(killed, tmp_path, ranks=case.ranks)
        kill_at_random(job, steps // case.kills, chance, may_be_early=number > 0)
        hits += job.processes[0].exitcode == -signal.SIGKILL
    assert hits >= case.kills - 1
    run(killed, tmp_path, ranks=case.ranks)
    assert_same_end(tmp_path / "logs" / "killed", tmp_path / "logs" / "whole")
    assert any(attempt["step"] for attempt in metrics(tmp_path / "logs" / "killed", "start"))


def kill_at_random(job: Job, steps: int, chance: random.Random, may_be_early: bool) -> None:
    """One in five before it trains; else some milliseconds after one of its first steps."""
    if may_be_early and chance.random() < 0.2:
        time.sleep(chance.uniform(0.0, 0.8))
    else:
        wait_for_steps(job, chance.randint(2, max(2, steps)))
        time.sleep(chance.uniform(0.0, 0.06))
    job.kill()


def wait_for_steps(job: Job, steps: int) -> None:
    """Until this many steps were logged, or it has ended."""
    while job.processes[0].is_alive() and job.outputs[0].read_text(encoding="utf-8").count(TRAINED) < steps:
        time.sleep(0.003)


# Every change of the files of a commit, in its order: a run dies just before each of them in turn.
COMMIT_POINTS = [
    "os.mkdir:.partial-generation-",
    "open:checkpoint.pt",
    "open:training.json",
    "open:state.snapshot",
    "open:manifest.json",
    "os.rename:.partial-generation-",
    "open:.partial-epoch_",
    "os.rename:epoch_",
    "open:.partial-epoch_latest",
    "os.rename:epoch_latest",
    "os.rename:.deleted-generation-",
    "shutil.rmtree:.deleted-generation-",
    "os.rmdir:",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "flags"),
    [(COMMIT_POINTS, {}), (["os.remove:/epoch_", "os.rename:epoch_"], {"delete_previous_checkpoint": True})],
    ids=["kept", "deleted"],
)
def test_killed_at_every_point_of_a_commit(
    points: list[str], flags: dict[str, Any], model: str, tmp_path: Path
) -> None:
    data = write_noise_shards(tmp_path / "data", [16])
    flags = {"epochs": 8, "save_every_n_steps": 1, "save_most_recent": True, **flags}
    lines = {
        name: arguments(model, data, tmp_path / "logs", name, loss="isogclr", resume="latest", **flags)
        for name in ("whole", "killed")
    }
    run(lines["whole"], tmp_path)
    for point in points:
        died = {"module": "saboteurs.dying", "environment": {"DIE_AT": point}, "expected": -signal.SIGKILL}
        run(lines["killed"], tmp_path, **died)
    run(lines["killed"], tmp_path)
    assert_same_end(tmp_path / "logs" / "killed", tmp_path / "logs" / "whole")
    assert_same_files(tmp_path / "logs" / "killed", tmp_path / "logs" / "whole")


def assert_same_files(found: Path, expected: Path) -> None:
    """Every `.pt` file has the weights of that epoch, and nothing is left of commits that did not happen."""
    for path in (expected / "checkpoints").glob("*.pt"):
        one, other = (
            torch.load(run_folder / "checkpoints" / path.name, weights_only=True)["state_dict"]
            for run_folder in (found, expected)
        )
        assert all(torch.equal(one[name], other[name]) for name in other), path.name
    assert not list((found / "checkpoints").rglob(".*"))
