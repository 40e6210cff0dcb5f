"""SIGTERM and SIGUSR1 in mid-epoch: a commit, exit code 75, and an epoch that is finished by whoever goes on."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.micro_run import Job, arguments, ended, metrics, run, start, write_csv, write_model
from support.run_state import assert_same_end, last_commit, losses, read_rows
from support.shard_writing import write_noise_shards

STOPPED = 75
EVEN = [16] * 6  # 96 samples, for 1, 2, 3 or 6 data workers
UNEVEN = [11, 29, 7, 20, 14, 18]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"), dropout=0.1)


class Run:
    """One run that goes on with one set-up after another."""

    def __init__(self, model: str, data: str, folder: Path, name: str = "stopped", **flags: Any) -> None:
        self.path = folder / "logs" / name
        self._folder = folder
        self._line = (model, data, folder / "logs", name)
        self._flags = {"loss": "isogclr", "isogclr_rho": 1.0, "epochs": 2, "batch_size": 4, **flags}

    def line(self, **changes: Any) -> list[str]:
        return arguments(*self._line, resume="latest", **{**self._flags, **changes})

    def go_on(self, ranks: int = 1, stop_at: int | None = None, **changes: Any) -> Job:
        variables = {name: changes.pop(name) for name in ("STOP_RANK", "SIGNAL", "DECODED") if name in changes}
        if stop_at is not None:
            variables["STOP_AT"] = str(stop_at)
        options = {"module": "saboteurs.stopping", "environment": variables}
        expected = 0 if stop_at is None else STOPPED
        job = run(self.line(**changes), self._folder, ranks=ranks, expected=expected, **options)
        assert "Traceback" not in job.text
        return job

    def visits(self) -> Any:
        return last_commit(self.path).rows["visits"]

    def visits_after_epoch(self, epoch: int) -> Any:
        """Visits as they were when `epoch_N.pt` was committed."""
        for path in (self.path / "checkpoints" / "generations").iterdir():
            published = (self.path / "checkpoints" / f"epoch_{epoch}.pt").read_bytes()
            if (path / "checkpoint.pt").read_bytes() == published:
                rows = read_rows(path / "state.snapshot")
                assert set(rows["last_epoch"].tolist()) == {epoch}
                return rows["visits"]
        raise AssertionError(f"no generation of epoch {epoch}")


def all_ones(visits: Any, times: int = 1) -> bool:
    return bool(np.array_equal(visits, np.full(len(visits), times)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "flags", "stop", "step"),
    [
        (1, {"workers": 0}, {"stop_at": 6}, 6),
        (2, {"workers": 2}, {"stop_at": 3, "SIGNAL": "SIGUSR1"}, 3),
        (2, {"workers": 0, "accum_freq": 2}, {"stop_at": 2, "STOP_RANK": "1"}, 2),
        (2, {"workers": 2, "save_every_n_steps": 1}, {"stop_at": -1}, 0),
        (1, {"workers": 2}, {"stop_at": 24}, 24),  # the last step of the first epoch
        (1, {"workers": 2, "val_data": "shards"}, {"stop_at": 30}, 29),  # an evaluation before it, and one behind
        (1, {"workers": 0}, {"stop_at": 25}, 24),  # before the first step of an epoch
        (1, {"workers": 0}, {"stop_at": 49}, 48),  # the last of all
        (2, {"workers": 0, "isogclr_temperature_start": "typical"}, {"stop_at": 6}, 6),
        (1, {"workers": 0, "isogclr_temperature_scope": "global"}, {"stop_at": 6}, 6),
    ],
    ids=[
        *("one", "two-usr1", "two-signal-to-one", "before-torch", "end-of-epoch", "evaluated", "start-of-epoch"),
        *("end-of-run", "typical-start", "global"),
    ],
)
def test_same_set_up_is_bit_for_bit(
    ranks: int, flags: dict[str, Any], stop: dict[str, Any], step: int, model: str, tmp_path: Path
) -> None:
    data = write_noise_shards(tmp_path / "data", EVEN)
    if "val_data" in flags:
        flags = {**flags, "val_data": write_noise_shards(tmp_path / "validation", [8], seed=1)}
    whole = Run(model, data, tmp_path, "whole", **flags)
    whole.go_on(ranks)
    stopped = Run(model, data, tmp_path, **flags)
    stopped.go_on(ranks, **stop)
    assert last_commit(stopped.path).training["step"] == step
    stopped.go_on(ranks)
    assert_same_end(stopped.path, whole.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "workers", "kind", "waiting", "signalled", "step"),
    [
        (1, 0, "program", 0, 0, 3),
        (1, 1, "fifo", 0, 0, 0),  # no batch has ever come
        (2, 0, "fifo", 1, 1, 2),
        (2, 1, "fifo", 1, 0, 2),
        (2, 0, "fifo", 0, 1, 0),
    ],
    ids=["one", "one-worker", "to-the-waiting-rank", "to-another-rank", "to-another-rank-at-once"],
)
def test_a_wait_for_data_ends_within_seconds(
    ranks: int, workers: int, kind: str, waiting: int, signalled: int, step: int, model: str, tmp_path: Path
) -> None:
    """Whichever rank is signalled, and whichever is the one whose data does not come."""
    data = write_noise_shards(tmp_path / "data", [8] * 4)
    flags = {"workers": workers, "epochs": 1}
    whole = Run(model, data, tmp_path, "whole", **flags)
    whole.go_on(ranks)
    stopped = Run(model, data, tmp_path, **flags)
    variables = {"WAIT_RANK": str(waiting), "WAIT_AFTER": str(4 * step), "WAIT_FOR": kind}
    job = start(stopped.line(), tmp_path, ranks=ranks, module="saboteurs.waiting", environment=variables)
    with ended(job):
        job.wait_for(f"[{4 * ranks * step:>2}/32 " if step else "Start epoch 0")
        time.sleep(1.0)  # until all have come to their wait
        os.kill(job.processes[signalled].pid, signal.SIGTERM)
        assert job.wait(10) == [STOPPED] * ranks, job.text
    assert "Traceback" not in job.text
    assert last_commit(stopped.path).training["step"] == step
    stopped.go_on(ranks)
    assert_same_end(stopped.path, whole.path)


CHANGES: list[list[tuple[int, dict[str, Any]]]] = [
    [(1, {})],
    [(3, {})],
    [(3, {"workers": 2, "batch_size": 2, "accum_freq": 2})],
    [(1, {"batch_size": 8, "workers": 3})],
    [(1, {"stop_at": 6}), (3, {"batch_size": 2, "stop_at": 3}), (2, {"batch_size": 3})],
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changes"),
    [*(("shards", changes) for changes in CHANGES), ("csv", CHANGES[2]), ("csv", CHANGES[4])],
    ids=["to-1", "to-3", "all-changed", "workers", "again-and-again", "csv-all-changed", "csv-again-and-again"],
)
def test_another_set_up_visits_each_sample_once(
    kind: str, changes: list[tuple[int, dict[str, Any]]], model: str, tmp_path: Path
) -> None:
    """Two ranks see 48 of 96 samples; what is left divides by every set-up that follows."""
    data = write_noise_shards(tmp_path / "data", EVEN) if kind == "shards" else write_csv(tmp_path / "data", 96)
    stopped = Run(model, data, tmp_path)
    stopped.go_on(2, stop_at=6)
    assert sorted(set(stopped.visits().tolist())) == [0, 1]
    assert stopped.visits().sum() == 48
    for ranks, change in changes:
        job = stopped.go_on(ranks, **change)
        assert "The set-up has changed" in job.text
        if "stop_at" in change:
            assert set(stopped.visits().tolist()) == {0, 1}
    assert all_ones(stopped.visits_after_epoch(1))
    assert all_ones(stopped.visits(), 2)
    assert_schedule_goes_on(stopped.path)


def assert_schedule_goes_on(run_folder: Path, lr: float = 0.001, epochs: int = 2) -> None:
    """Learning rates are those of the cosine at the fraction of the run that was over when the step began."""
    records = {record["step"]: record for record in metrics(run_folder, "train")}
    assert sorted(records) == list(range(len(records)))
    begun = 0.0
    for step in sorted(records):
        expected = 0.5 * (1 + math.cos(math.pi * begun / epochs)) * lr
        assert records[step]["lr"] == pytest.approx(expected, rel=1e-6, abs=1e-12), step
        assert records[step]["epoch"] > begun
        begun = records[step]["epoch"]
    assert begun == pytest.approx(epochs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ranks", "workers", "batch_size", "accumulation"),
    [("shards", 3, 0, 5, 1), ("shards", 1, 2, 7, 1), ("shards", 3, 2, 3, 2), ("csv", 3, 2, 3, 2)],
)
def test_counts_that_do_not_divide(
    kind: str, ranks: int, workers: int, batch_size: int, accumulation: int, model: str, tmp_path: Path
) -> None:
    """None lost; repeated are only as many as fill the last batches."""
    data = write_noise_shards(tmp_path / "data", UNEVEN) if kind == "shards" else write_csv(tmp_path / "data", 99)
    stopped = Run(model, data, tmp_path, epochs=1)
    stopped.go_on(2, stop_at=5, workers=1)
    before = stopped.visits()
    left = int((before == 0).sum())
    assert 0 < left < 99
    stopped.go_on(ranks, workers=workers, batch_size=batch_size, accum_freq=accumulation)
    after = stopped.visits()
    assert after.min() == 1
    assert np.array_equal(after[before > 0], before[before > 0])
    parts = ranks * max(1, workers)
    batches = math.ceil(math.ceil(left / parts) / batch_size) * max(1, workers)  # of a rank, for the largest share
    drawn = math.ceil(batches / accumulation) * accumulation * batch_size * ranks
    assert left <= after[before == 0].sum() <= drawn
    assert_schedule_goes_on(stopped.path, epochs=1)
    assert drawn < left + parts * batch_size * (1 + accumulation)


def test_what_is_skipped_is_not_decoded(model: str, tmp_path: Path) -> None:
    data = write_noise_shards(tmp_path / "data", EVEN)
    for name, changes, left in (("same", {}, 64), ("other", {"batch_size": 8}, 64)):
        stopped = Run(model, data, tmp_path, name, epochs=1)
        stopped.go_on(1, stop_at=8, DECODED=str(tmp_path / "first"))
        stopped.go_on(1, DECODED=str(tmp_path / "second"), **changes)
        assert (tmp_path / "first").read_text() == "32"
        assert (tmp_path / "second").read_text() == str(left)
        assert len(losses(stopped.path)) == 8 + left // int(changes.get("batch_size", 4))


def test_resampled_data_needs_the_same_set_up(model: str, tmp_path: Path) -> None:
    data = write_noise_shards(tmp_path / "data", EVEN)
    stopped = Run(model, data, tmp_path, dataset_resampled=True, train_num_samples=96)
    stopped.go_on(1, stop_at=3)
    line: Sequence[str] = arguments(
        model, data, tmp_path / "logs", "stopped", loss="isogclr", dataset_resampled=True, train_num_samples=96,
        batch_size=6, epochs=2, resume="latest",
    )  # fmt: skip
    job = run(line, tmp_path, expected=1)
    assert "--dataset-resampled" in job.text
    stopped.go_on(1)
