"""What a resume says about the program of the run that it goes on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from isogclr.errors import TrainingError
from training.commits.resume import Resumed, check_loss, check_program, load_weights

UNIMODAL, MAIN = ("unimodal", "python -m training.unimodal"), (None, "python -m training.main")


def resumed(**content: Any) -> Resumed:
    return Resumed(Path("x.pt"), content, None, None)


OF_VIEWS = resumed(epoch=1, isogclr={"kind": "unimodal", "loss": "isogclr"})
OF_PAIRS = resumed(epoch=1, isogclr={"loss": "isogclr"})
OF_OPEN_CLIP = resumed(epoch=1)


def test_its_own_and_bare_weights() -> None:
    check_program(OF_VIEWS, *UNIMODAL)
    check_program(OF_PAIRS, *MAIN)
    check_program(OF_OPEN_CLIP, *MAIN)
    for program in (UNIMODAL, MAIN):
        check_program(resumed(weight=0), *program)


@pytest.mark.parametrize(
    ("found", "program", "said"),
    [
        (OF_VIEWS, MAIN, "found a commit of unimodal training, expected one of image-text training"),
        (OF_PAIRS, UNIMODAL, "found a commit of image-text training, expected one of unimodal training"),
        (OF_OPEN_CLIP, UNIMODAL, "which is what python -m training.unimodal does"),
    ],
)
def test_those_of_the_other_program(found: Resumed, program: tuple[str | None, str], said: str) -> None:
    with pytest.raises(TrainingError, match=said):
        check_program(found, *program)


def test_advice_names_flags_that_the_program_has() -> None:
    with pytest.raises(TrainingError, match=r"start a new run from its weights with --pretrained$"):
        check_loss(OF_PAIRS, "clip")
    with pytest.raises(TrainingError, match=r"or start a new run$"):
        check_loss(OF_VIEWS, "simclr")
    wrong = {"epoch": 1, "state_dict": {"other": 0}}
    with pytest.raises(TrainingError, match="use the --model that it was trained with"):
        load_weights(resumed(**wrong), nn.Linear(1, 1))
    with pytest.raises(TrainingError, match="use the --backbone, --stem and --projector that it was trained with"):
        load_weights(resumed(**wrong, isogclr={"kind": "unimodal"}), nn.Linear(1, 1))
