"""Jobs that are pushed aside, or lose a rank, in the middle of an epoch: requeued, each sample once an epoch."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from micro_run import metrics, stored
from recording_main import recorded
from slurm.cluster import Job, Slurm, wait_until
from slurm.training_job import Place

EPOCHS, SAMPLES, BATCH = 2, 192, 8  # 24 steps an epoch


@pytest.fixture
def place(slurm: Slurm, tmp_path: Path) -> Place:
    return Place.create(slurm, tmp_path, [48] * 4)


def steps_done(place: Place) -> int:
    record = place.folder / "rank-0.jsonl"
    return len(record.read_text().splitlines()) if record.exists() else 0


def wait_for_step(place: Place, job: Job, step: int) -> None:
    wait_until(lambda: steps_done(place) >= step or "error" in job.text, 240, f"step {step}")
    assert steps_done(place) >= step, job.text


def preempt(slurm: Slurm, folder: Path) -> Job:
    """A job of the upper partition that wants both nodes for itself."""
    script = folder / "important.sh"
    script.write_text("#!/bin/bash\ntrue\n")
    return slurm.submit(script, options=["--partition=high", "--nodes=2", "--exclusive"], environment={})


def assert_each_sample_once_an_epoch(place: Place, name: str) -> None:
    state = stored(place.run_folder(name))
    assert len(state) == SAMPLES
    assert (state["visits"] == EPOCHS).all()
    assert (state["last_epoch"] == EPOCHS).all()


@pytest.mark.slow
@pytest.mark.parametrize("nodes_after", [2, 1])
def test_preempted_and_requeued(slurm: Slurm, place: Place, nodes_after: int) -> None:
    """Slurm's own signal, Slurm's own queue. Data workers get the signal too."""
    job = place.submit("run", global_batch=BATCH, epochs=EPOCHS, workers=1, environment={"STEP_SECONDS": "0.5"})
    wait_for_step(place, job, 3)
    important = preempt(slurm, place.folder)
    job.wait_for("requeue: it was stopped on request")
    if nodes_after == 1:
        job.wait_for_state("PENDING")
        slurm.call("scontrol", "update", f"JobId={job.number}", "NumNodes=1", "NumTasks=1")
    assert important.wait()[0] == "COMPLETED"
    assert job.wait() == ("COMPLETED", "0:0"), job.text
    assert job.show("Restarts") == "1"
    assert f"{nodes_after} nodes" in job.text.split("start 2")[1].splitlines()[0]

    starts = metrics(place.run_folder("run"), "start")
    assert [one["resumed_from"] is None for one in starts] == [True, False]
    assert 0 < starts[1]["step"] < SAMPLES // BATCH  # in the middle of the first epoch
    assert_each_sample_once_an_epoch(place, "run")
    if nodes_after == 2:  # nothing was trained twice, nothing left out
        visits = Counter(row for rank in recorded(place.folder, 2) for step in rank for row in step)
        assert visits == dict.fromkeys(range(SAMPLES), EPOCHS)


@pytest.mark.slow
def test_a_killed_rank_ends_the_job_which_is_requeued(slurm: Slurm, place: Place) -> None:
    job = place.submit(
        "run", global_batch=BATCH, epochs=EPOCHS, save_every_n_steps=2, environment={"STEP_SECONDS": "0.5"}
    )
    wait_for_step(place, job, 5)
    killed = time.monotonic()
    os.kill(rank_process(1), signal.SIGKILL)
    job.wait_for("requeue: it failed", 90)
    assert time.monotonic() - killed < 75
    said = job.text
    assert "task 1: Killed" in said, said  # the cause, by Slurm; the rank itself can not say anything
    assert job.wait() == ("COMPLETED", "0:0"), job.text
    assert_each_sample_once_an_epoch(place, "run")


def rank_process(rank: int) -> int:
    """The trainer process of a task; its data workers have it as their parent."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if b"recording_main" in command and f"SLURM_PROCID={rank}".encode() in variables:
            found.append(int(folder.name))
    assert found
    return min(found)
