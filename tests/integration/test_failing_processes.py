"""Ranks, data workers and disks that fail: all ranks end soon, with the cause once; the last commit is whole."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isogclr.errors import StorageFullError
from saboteurs import failing
from support.micro_run import Job, arguments, ended, run, start, write_model
from support.run_state import assert_same_end, last_commit
from support.shard_writing import write_noise_shards
from training import full_disk, params
from training.steps.metric_log import MetricLog

SECONDS = 90  # within which all ranks must have ended, on a machine that has other things to do as well
STOPPED = 75
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_noise_shards(tmp_path_factory.mktemp("data"), [16] * 6)


def command(model: str, data: str, folder: Path, **flags: Any) -> list[str]:
    """A run that goes on for long, unless somebody ends it."""
    long = {"epochs": 500, "save_every_n_steps": 4, "batch_size": 4, "resume": "latest", **flags}
    return arguments(model, data, folder / "logs", "failing", loss="isogclr", isogclr_rho=1.0, **long)


def assert_ends_well(job: Job, words: str, killed: int | None = None) -> None:
    """All but the killed rank end with 1; one says why; and that is all of it."""
    codes = job.wait(SECONDS)
    expected = [-signal.SIGKILL if rank == killed else 1 for rank in range(len(codes))]
    assert codes == expected, job.text
    assert job.text.count(words) == 1, job.text
    assert job.text.count("| ERROR |") == 1, job.text


def assert_resumable(line: list[str], folder: Path, ranks: int) -> None:
    """The last commit is whole, and a run goes on from it, maybe with the next epoch."""
    before = last_commit(folder / "logs" / "failing").training["step"]
    stopping = {"module": "saboteurs.stopping", "environment": {"STOP_AT": "2"}, "expected": STOPPED}
    job = run(line, folder, ranks=ranks, **stopping)
    assert f"step {before}, " in job.text
    assert last_commit(folder / "logs" / "failing").training["step"] > before


@pytest.mark.parametrize(("ranks", "victim"), [(2, 0), (2, 1), (3, 0), (3, 2)])
def test_killed_rank(ranks: int, victim: int, model: str, data: str, tmp_path: Path) -> None:
    line = command(model, data, tmp_path)
    with ended(start(line, tmp_path, ranks=ranks)) as job:
        job.wait_for("Committed step 8 ")
        os.kill(job.processes[victim].pid, signal.SIGKILL)
        assert_ends_well(job, "lost the connection to another rank", victim)
        assert "Traceback" not in job.text
    assert_resumable(line, tmp_path, ranks)


@pytest.mark.parametrize(("ranks", "victim"), [(2, 1), (3, 0)])
def test_rank_that_raises(ranks: int, victim: int, model: str, data: str, tmp_path: Path) -> None:
    line = command(model, data, tmp_path)
    variables = {"FAIL_RANK": str(victim), "FAIL_AT": "9"}
    with ended(start(line, tmp_path, ranks=ranks, module="saboteurs.failing", environment=variables)) as job:
        assert_ends_well(job, failing.MESSAGE)
        assert job.text.count("Traceback") == 1
        assert f"| ERROR | rank {victim}: " in job.text
    assert_resumable(line, tmp_path, ranks)


@pytest.mark.parametrize("victim", [0, 1])
def test_rank_that_raises_and_can_not_clean_up(victim: int, model: str, data: str, tmp_path: Path) -> None:
    """Finishing a W&B run, for one, may wait for a network that is down: the others must not wait with it."""
    line = command(model, data, tmp_path)
    variables = {"FAIL_RANK": str(victim), "FAIL_AT": "9", "HANGS": "1"}
    with ended(start(line, tmp_path, ranks=2, module="saboteurs.failing", environment=variables)) as job:
        assert_ends_well(job, failing.MESSAGE)


@pytest.mark.parametrize(("ranks", "victim"), [(1, 0), (2, 0), (2, 1)])
def test_killed_data_worker(ranks: int, victim: int, model: str, data: str, tmp_path: Path) -> None:
    line = command(model, data, tmp_path, workers=2)
    with ended(start(line, tmp_path, ranks=ranks)) as job:
        job.wait_for("Committed step 8 ")
        pid = job.processes[victim].pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert_ends_well(job, "a data worker process ended by itself")
    assert_resumable(line, tmp_path, ranks)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_full_disk(ranks: int, model: str, data: str, small_disk: Path, tmp_path: Path) -> None:
    """Filled between two commits; when there is room again, the run ends as one that had it all the time."""
    flags = {"epochs": 4, "save_every_n_steps": 2, "isogclr_state_dir": tmp_path / "state"}
    run(command(model, data, tmp_path, **flags), tmp_path, ranks=ranks)
    line = command(model, data, small_disk, **flags)
    with ended(start(line, tmp_path, ranks=ranks)) as job:
        job.wait_for("Committed step 4 ")
        job.kill(signal.SIGSTOP)  # what it commits meanwhile would take the room that is to be filled
        fill(small_disk / "ballast")
        job.kill(signal.SIGCONT)
        assert_ends_well(job, "could not commit a generation: the disk is full")
        assert "Traceback" not in job.text.partition("| ERROR |")[2]
    (small_disk / "ballast").unlink()
    assert 4 <= last_commit(small_disk / "logs" / "failing").training["step"] < 4 * 96 // (4 * ranks)
    run(line, tmp_path, ranks=ranks)
    assert_same_end(small_disk / "logs" / "failing", tmp_path / "logs" / "failing")


def fill(path: Path, but: int = 100_000) -> None:
    """All but what logs need."""
    free = shutil.disk_usage(path.parent).free
    path.write_bytes(bytes(max(0, free - but)))


@pytest.mark.parametrize(
    ("ranks", "but"), [(1, 0), (2, 0), (1, 40_000)], ids=["log", "log-of-two", "metrics-or-commit"]
)
def test_resume_on_a_full_disk(
    ranks: int, but: int, model: str, data: str, small_disk: Path, tmp_path: Path
) -> None:
    """One line says so, whoever meets it first."""
    line = command(model, data, small_disk, isogclr_state_dir=tmp_path / "state", report_to="tensorboard")
    run(line, tmp_path, ranks=ranks, module="saboteurs.stopping", environment={"STOP_AT": "5"}, expected=STOPPED)
    fill(small_disk / "ballast", but)
    with ended(start(line, tmp_path, ranks=ranks)) as job:
        assert_ends_well(job, "the disk is full (")
        assert "--- Logging error" not in job.text
        assert "Traceback" not in job.text
        # torch itself may tell of a connection that the other rank has closed: "Exception raised from recvBytes".
        assert "Exception" not in job.text.replace("Exception raised from", "")
    assert last_commit(small_disk / "logs" / "failing").training["step"] >= 5


def test_tensorboard_on_a_full_disk(small_disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its thread meets the disk first, and says nothing."""
    settings = params.parse(["--train-data", "a.tar", "--report-to", "tensorboard"])[0].run
    full_disk.leave_to_main_thread()
    metrics = MetricLog(small_disk, settings, True, "name", {})
    fill(small_disk / "ballast", 0)
    with pytest.raises(StorageFullError, match="could not write events for TensorBoard: the disk is full"):
        metrics.train(1, {f"loss {number}": 1.0 for number in range(1000)}, {})
    with pytest.raises(StorageFullError, match="could not write events for TensorBoard: the disk is full"):
        MetricLog(small_disk, settings, True, "name", {})
    assert "Traceback" not in capfd.readouterr().err


def test_two_runs_of_one_name(model: str, data: str, tmp_path: Path) -> None:
    """The second is refused; the first does not notice."""
    line = command(model, data, tmp_path)
    with ended(start(line, tmp_path)) as first:
        first.wait_for("Committed step 4 ")
        with ended(start(line, tmp_path, ranks=2)) as second:
            assert_ends_well(second, "found the lock of pid")
        first.kill(signal.SIGTERM)
        assert first.wait(SECONDS) == [STOPPED]
    assert_resumable(line, tmp_path, 1)


def test_two_runs_of_one_name_on_two_machines(model: str, data: str, tmp_path: Path) -> None:
    """No lock tells them of each other, but commits do: who finds one that is not its own ends."""
    flags = {"save_every_n_steps": None}
    here, there = (command(model, data, tmp_path, isogclr_state_dir=tmp_path / place, **flags) for place in "ab")
    with ended(start(here, tmp_path)) as first:
        first.wait_for("Committed step 24 ")
        first.kill(signal.SIGSTOP)  # it hangs, and somebody starts another
        with ended(start(there, tmp_path)) as second:
            second.wait_for("Committed step ")
            second.kill(signal.SIGTERM)
            assert second.wait(SECONDS) == [STOPPED]
        first.kill(signal.SIGCONT)
        assert first.wait(SECONDS) == [1], first.text
        assert "two runs of one name" in first.text or "could not commit a generation" in first.text
    assert_resumable(there, tmp_path, 1)
