"""The line of the log, and the lines of metrics.jsonl."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from isogclr.errors import StorageFullError
from isogclr.report.journal import read_journal
from training import params
from training.steps.metric_log import METRICS_FILE, MetricLog, learned_summary


def temperatures(direction: str, mean: float) -> dict[str, float]:
    values = {"mean": mean, "q05": 0.01, "q50": 0.05, "q95": 0.25, "at_minimum": 0.125, "at_maximum": 0.0}
    return {f"{direction}.temperature.{name}": value for name, value in values.items()}


def test_directions_come_from_the_statistics() -> None:
    statistics = {"loss": 1.0, "image.log_mean.mean": -3.0, "objective": 0.5}
    both = {**statistics, **temperatures("image", 0.0625), **temperatures("text", 0.125), "kept_rows": 2.0}
    assert learned_summary(both) == (
        " Objective: 0.50000 τ image: 0.0625 (0.01 0.05 0.25; 12/0% at bounds)"
        " τ text: 0.125 (0.01 0.05 0.25; 12/0% at bounds) Not finite: 2 rows kept"
    )
    one = learned_summary({**statistics, **temperatures("picture", 0.0625)})
    assert one == " Objective: 0.50000 τ picture: 0.0625 (0.01 0.05 0.25; 12/0% at bounds)"
    assert learned_summary({"loss": 1.0}) == ""


@pytest.mark.parametrize(
    "left", [b"", b'{"kind": "train", "step": 6, "loss": 1.0}\n', b'{"kind": "train", "st', b"\xff"]
)
def test_a_torn_last_line_swallows_no_record(left: bytes, tmp_path: Path) -> None:
    """What a run that was killed has left stays as it is, in a line of its own."""
    path = tmp_path / METRICS_FILE
    path.write_bytes(b'{"kind": "train", "step": 5, "loss": 2.0}\n' + left)
    settings = params.parse(["--train-data", "a.tar"])[0]
    MetricLog(tmp_path, settings.run, True, "a", {}).start(5, "generation-00000001")
    before, last = path.read_bytes().splitlines(keepends=True)[:-1], path.read_bytes().splitlines()[-1]
    assert b"".join(before).removesuffix(b"\n").endswith(left.removesuffix(b"\n"))
    assert json.loads(last)["kind"] == "start"
    journal = read_journal(path)
    assert (journal.starts, journal.unreadable) == (1, int(bool(left) and not left.endswith(b"\n")))


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).symlink_to("/dev/full")
    metrics = MetricLog(tmp_path, params.parse(["--train-data", "a.tar"])[0].run, True, "a", {})
    with pytest.raises(StorageFullError, match=r"metrics\.jsonl: could not write metrics: the disk is full"):
        metrics.start(5, None)


def test_other_ranks_leave_it_alone(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_bytes(b"torn")
    MetricLog(tmp_path, params.parse(["--train-data", "a.tar"])[0].run, False, "a", {}).start(5, None)
    assert (tmp_path / METRICS_FILE).read_bytes() == b"torn"
