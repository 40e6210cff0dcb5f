"""What a resume says about the loss of the run that it goes on with."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from isogclr.config import ISogCLRConfig
from training.commits.resume import Resumed, warn_of_other_options


def resumed(**facts: Any) -> Resumed:
    return Resumed(Path("x.pt"), {"isogclr": facts} if facts else {}, None, None)


def test_one_line_for_each_option_that_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    before, now = (
        ISogCLRConfig.preset("paper", rho=6.0, gamma=0.8),
        ISogCLRConfig.preset("paper", rho=7.5, gamma=0.9),
    )
    with caplog.at_level(logging.WARNING):
        warn_of_other_options(resumed(loss_config=asdict(before)), "isogclr", asdict(now))
    assert caplog.messages == [
        "gamma of --loss isogclr has changed at this resume: 0.8 → 0.9",
        "rho of --loss isogclr has changed at this resume: 6.0 → 7.5",
    ]


@pytest.mark.parametrize(("now", "advised"), [(ISogCLRConfig(), True), (ISogCLRConfig.preset("paper"), False)])
def test_a_run_of_the_former_default_hears_how_it_goes_on(
    now: ISogCLRConfig, advised: bool, caplog: pytest.LogCaptureFixture
) -> None:
    before = ISogCLRConfig.preset("paper")
    with caplog.at_level(logging.WARNING):
        warn_of_other_options(resumed(loss_config=asdict(before)), "isogclr", asdict(now))
    assert any("give --isogclr-preset paper" in message for message in caplog.messages) == advised
    assert bool(caplog.messages) == advised


@pytest.mark.parametrize("facts", [{}, {"loss": "isogclr"}, {"loss_config": {"rho": 6.0, "gone": 1}}])
def test_nothing_is_said_of_what_is_equal_or_not_known(
    facts: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Checkpoints of open_clip and of other releases."""
    with caplog.at_level(logging.WARNING):
        warn_of_other_options(resumed(**facts), "isogclr", {"rho": 6.0, "new": 2})
    assert caplog.messages == []
