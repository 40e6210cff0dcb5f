"""Which steps are bad, and how they are counted."""

from __future__ import annotations

import math

import pytest
import torch

from training.steps.health import Health, is_bad
from training.store.state_table import Settled


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_step_is_bad_by_its_loss_or_by_its_gradients(value: float) -> None:
    one, bad = torch.tensor(1.0), torch.tensor(value)
    assert is_bad(bad, one, False)
    assert is_bad(one, bad, False)
    assert is_bad(bad, None, False)  # a scaler does not save a loss that is not finite
    assert is_bad(one, None, True)
    assert not is_bad(one, one, False)
    assert not is_bad(one, None, False)


def health(steps: str, limit: int = 3) -> Health:
    """A step per letter: b is bad."""
    found = Health(limit)
    for number, letter in enumerate(steps):
        found.add(Settled(number, letter == "b", float(number)))
    return found


@pytest.mark.parametrize(
    ("steps", "in_a_row", "first_bad", "last_finite", "is_over"),
    [
        ("", 0, None, None, False),
        ("gg", 0, None, 2, False),
        ("gbb", 2, 2, 1, False),
        ("gbbb", 3, 2, 1, True),
        ("bbgbb", 2, 4, 3, False),  # one that is finite begins the count anew
        ("bbb", 3, 1, None, True),
    ],
)
def test_only_steps_in_a_row_count(
    steps: str, in_a_row: int, first_bad: int | None, last_finite: int | None, is_over: bool
) -> None:
    found = health(steps)
    assert (found.bad_in_a_row, found.first_bad, found.last_finite, found.is_over) == (
        in_a_row,
        first_bad,
        last_finite,
        is_over,
    )


def test_broken_weights_are_news_once_and_looked_at_again() -> None:
    found = health("ggggg")
    assert found.looked(4, ("visual.bn1.running_mean",))
    assert not found.looked(5, ("visual.bn1.running_mean",))
    assert [found.is_time_to_look(step) for step in (5, 6, 7)] == [False, False, True]
    assert not found.looked(7, ())  # it has recovered
    assert not found.is_time_to_look(100)
    assert found.looked(9, ("w",))
    assert found.broken_since == 9
