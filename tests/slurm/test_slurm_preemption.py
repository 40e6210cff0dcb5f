"""Jobs that are pushed aside, or lose a rank, in the middle of an epoch: requeued, each sample once an epoch."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from saboteurs.recording import recorded
from slurm.cluster import Job, Slurm, wait_until
from slurm.training_job import Place
from support.micro_run import metrics, stored

EPOCHS, SAMPLES, BATCH = 2, 288, 8  # 36 steps an epoch


@pytest.fixture
def place(slurm: Slurm, tmp_path: Path) -> Place:
    return Place.create(slurm, tmp_path, [72] * 4)


def steps_done(place: Place) -> int:
    record = place.folder / "rank-0.jsonl"
    return len(record.read_text().splitlines()) if record.exists() else 0


def wait_for_step(place: Place, job: Job, step: int) -> None:
    wait_until(lambda: steps_done(place) >= step or "not requeued" in job.text, 240, f"step {step}")
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
def test_preempted_twice_and_finished_on_one_node(slurm: Slurm, place: Place) -> None:
    """Slurm's own signal and queue: two nodes, two nodes again, then one. Data workers get the signal too."""
    slow = {"STEP_SECONDS": "0.4", "SLOW_STARTS": "2"}
    job = place.submit("run", global_batch=BATCH, epochs=EPOCHS, workers=1, environment=slow)
    for start in (1, 2):
        wait_for_step(place, job, steps_done(place) + 3)
        important = preempt(slurm, place.folder)
        wait_until(lambda start=start: job.text.count("requeue: it was stopped on request") == start, 240, job.text)
        if start == 2:
            job.wait_for_state("PENDING")
            slurm.call("scontrol", "update", f"JobId={job.number}", "NumNodes=1", "NumTasks=1")
        assert important.wait()[0] == "COMPLETED"
    assert job.wait() == ("COMPLETED", "0:0"), job.text
    nodes = [int(line.split(" nodes (")[0].split()[-1]) for line in job.text.splitlines() if " nodes (" in line]
    assert nodes == [2, 2, 1]

    starts = metrics(place.run_folder("run"), "start")
    assert [one["resumed_from"] is None for one in starts] == [True, False, False]
    assert all(one["step"] % (SAMPLES // BATCH) != 0 for one in starts[1:])  # in the middle of an epoch
    assert_each_sample_once_an_epoch(place, "run")
    visits = Counter(row for rank in recorded(place.folder, 2) for step in rank for row in step)
    assert visits == dict.fromkeys(range(SAMPLES), EPOCHS)  # nothing was trained twice, nothing left out


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
        if b"saboteurs.recording" in command and f"SLURM_PROCID={rank}".encode() in variables:
            found.append(int(folder.name))
    assert found
    return min(found)
