"""What the log says of the loss."""

from __future__ import annotations

from typing import Any

import pytest

from isogclr.config import PRESETS
from training.loss import described
from training.settings import LossSettings


@pytest.mark.parametrize(
    ("preset", "given", "expected"),
    [
        ("recommended", {}, "Loss: isogclr, preset recommended"),
        ("paper", {}, "Loss: isogclr, preset paper"),
        ("paper", {"rho": 3.0, "gamma": 0.8}, "Loss: isogclr, preset paper, rho 3.0"),
        ("recommended", {"rho": 3.0, "gamma": 0.8}, "Loss: isogclr, preset recommended, gamma 0.8, rho 3.0"),
    ],
)
def test_the_preset_and_what_was_given_beside_it(preset: str, given: dict[str, Any], expected: str) -> None:
    assert described(LossSettings("isogclr", {**PRESETS[preset], **given}, preset=preset)) == expected


def test_a_loss_without_presets() -> None:
    assert described(LossSettings("sogclr", {"gamma": 0.5})) == "Loss: sogclr"
