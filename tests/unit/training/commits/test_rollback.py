"""Which commit a diverged run can go on from, and the same commit once more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from isogclr.state import generations, latest, write_generation
from training.commits.rollback import Rollbacks, commit_again, last_tried, set_aside_after


def commit(root: Path, step: int, **more: Any) -> None:
    with write_generation(root, step=step, info={"commit": "c", "epoch": 1, "is_end_of_epoch": True}) as folder:
        (folder / "checkpoint.pt").write_bytes(b"weights of %d" % step)
        (folder / "training.json").write_text(json.dumps({"step": step, **more}))


@pytest.mark.parametrize(
    ("first_bad", "expected"),
    [
        (None, 9),  # no step was bad: every commit is finite
        (11, 9),  # step 10 was finite, with the weights of 9
        (10, 6),  # the first step from 9 was bad, and would be again
        (9, 6),
        (7, 3),
        (4, None),
        (1, None),
    ],
)
def test_a_commit_is_sound_if_the_step_after_it_was_finite(
    first_bad: int | None, expected: int | None, tmp_path: Path
) -> None:
    for step in (3, 6, 9):
        commit(tmp_path, step)
    found = last_tried(tmp_path, first_bad)
    assert (None if found is None else found.step) == expected
    assert last_tried(tmp_path / "nothing", first_bad) is None


def test_later_commits_lose_their_names_and_keep_their_files(tmp_path: Path) -> None:
    for step in (3, 6, 9):
        commit(tmp_path, step)
    for _ in range(2):
        sound = last_tried(tmp_path, 5)
        assert sound is not None
        moved = set_aside_after(sound)
        commit(tmp_path, 6)  # as after a rollback: the number of the first one comes again
    assert [path.name for path in moved] == ["diverged-generation-00000002-2"]
    aside = sorted(path.name for path in tmp_path.glob("diverged-*"))
    assert aside == [f"diverged-generation-{name}" for name in ("00000002", "00000002-2", "00000003")]
    assert (tmp_path / aside[2] / "checkpoint.pt").read_bytes() == b"weights of 9"
    assert [one.step for one in generations(tmp_path)] == [6, 3]


def test_once_more_with_a_lower_learning_rate(tmp_path: Path) -> None:
    commit(tmp_path, 3, ranks=[1, 2])
    first = latest(tmp_path)
    assert first is not None
    rollbacks = Rollbacks(lr=0.1).once_more(0.5).once_more(0.5)
    path = commit_again(first, rollbacks)
    found = latest(tmp_path)
    assert found is not None
    found.verify()
    assert (found.path, found.step, found.manifest.keep) == (path, 3, False)
    assert (path / "checkpoint.pt").read_bytes() == b"weights of 3"
    training = json.loads((path / "training.json").read_text())
    assert training == {"step": 3, "ranks": [1, 2], "rollbacks": {"count": 2, "lr_factor": 0.25, "lr": 0.1}}
    assert not found.manifest.info["is_end_of_epoch"]  # epoch_N.pt belongs to the first one
    assert found.manifest.info["commit"] != first.manifest.info["commit"]
    assert Rollbacks.of(training, 0.1) == rollbacks
    assert Rollbacks.of(training, 0.2) == Rollbacks(lr=0.2)  # somebody has chosen
    assert Rollbacks.of({}, 0.1) == Rollbacks.of(None, 0.1) == Rollbacks(lr=0.1)
    assert Rollbacks(lr=0.1).to_json() == {}
