"""Where a run is, in steps of the schedule and in fractions of an epoch."""

from __future__ import annotations

import pytest

from training.steps.progress import Progress


def test_the_schedule_counts_whole_epochs_and_what_is_done_of_this_one() -> None:
    """After a change of set-up a step may be worth more or less than one of the schedule."""
    progress = Progress(epoch=2, step=71, done=10.5, steps_per_epoch=30)
    assert progress.schedule_step == pytest.approx(70.5)  # 2 · 30 + 10.5, whatever the number of the step
    assert progress.fraction == pytest.approx(0.35)


def test_a_run_begins_at_zero() -> None:
    assert Progress(steps_per_epoch=7).schedule_step == 0
