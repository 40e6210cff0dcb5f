"""The message of a run that has diverged, and its decision to go back."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isogclr.distributed import Messages, Ranks
from isogclr.state import latest, write_generation
from training.commits.rollback import Rollbacks
from training.divergence import Divergence
from training.settings import DivergenceSettings
from training.steps.health import Health
from training.store.state_table import Settled


def diverged(
    root: Path | None,
    caplog: pytest.LogCaptureFixture,
    *,
    broken: tuple[str, ...] = (),
    bad: bool = True,
    **more: Any,
) -> tuple[bool, str, list[str]]:
    """After 3 finite steps and 3 bad ones: whether it goes back, what is said, what kinds of lines are noted."""
    health = Health(limit=3)
    for step in range(6):
        health.add(Settled(step, bad and step >= 3, math.nan if bad and step >= 3 else 0.5))
    health.looked(6, broken)
    noted: list[str] = []
    metrics: Any = SimpleNamespace(
        divergence=lambda step, values: noted.append("divergence"),
        rollback=lambda step, values: noted.append("rollback"),
    )
    settings, rollbacks = DivergenceSettings(**more), Rollbacks(count=1, lr_factor=0.5, lr=8.0)
    subject = Divergence(settings, health, metrics, Messages(Ranks()), root, rollbacks, lambda: 4.0)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        goes_back = subject.goes_back(6)
    (message,) = caplog.messages
    return goes_back, message, noted


def commit(root: Path, step: int) -> None:
    with write_generation(root, step=step) as folder:
        (folder / "training.json").write_text("{}")


def test_it_stops_with_all_that_is_known(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit(tmp_path, 2)
    goes_back, message, noted = diverged(tmp_path, caplog)
    assert message == (
        "The run has diverged at step 6: found a loss or gradients that are not finite in 3 steps in a row, 4 to 6 "
        "(loss nan, learning rate 4). The last finite step was 3; the last sound commit is of step 2, "
        f"{tmp_path}/generation-00000001. What to do: go on from there by --resume latest, with a lower --lr, a "
        "longer warm-up, --grad-clip-norm 1, or another --precision (fp32 is the safest; where there are such, "
        "fp16 and pure_fp16 do not scale gradients). --on-divergence rollback does the first of these by itself."
    )
    assert (goes_back, noted) == (False, ["divergence"])


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((), "The last finite step was 3, and nothing was ever committed. What to do: start again"),
        (
            (3,),
            "the only commit, {root}/generation-00000001, leads straight to a step that was not. What to do: start",
        ),
        (
            (1, 3),
            "is of step 1, {root}/generation-00000001. diverged-generation-00000002 was set aside",
        ),
        (None, "and nothing was committed, because of --logs none. What to do: start again"),
    ],
)
def test_commits(steps: Any, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for step in steps or ():
        commit(tmp_path, step)
    goes_back, message, _ = diverged(None if steps is None else tmp_path, caplog)
    assert words.format(root=tmp_path) in message
    assert not goes_back


def test_weights_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit(tmp_path, 6)
    _, message, _ = diverged(tmp_path, caplog, broken=("a", "b", "c", "d"), bad=False)
    assert "at step 6: 4 tensors are not finite (a, b, c and others) (loss 0.5, learning rate 4)" in message
    assert "the last sound commit is of step 6" in message


def test_going_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit(tmp_path, 2)
    goes_back, message, noted = diverged(tmp_path, caplog, rolls_back=True, lr_factor=0.1)
    assert goes_back
    assert "Rollback 2 of 3: going back to step 2 with 0.05 of --lr" in message
    assert noted == ["divergence", "rollback"]
    found = latest(tmp_path)
    assert found is not None
    assert (found.number, found.step) == (2, 2)


@pytest.mark.parametrize(
    ("step", "most", "words"),
    [
        (2, 1, "It has gone back 1 times, as often as --max-rollbacks allows."),
        (3, 3, "There is no commit to go back to."),
    ],
)
def test_no_way_back(step: int, most: int, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    commit(tmp_path, step)
    goes_back, message, noted = diverged(tmp_path, caplog, rolls_back=True, max_rollbacks=most)
    assert words in message
    assert "--on-divergence" not in message
    assert (goes_back, noted) == (False, ["divergence"])
