"""Inside a training: a flat dict of numbers, and nothing that the training would notice."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from isogclr.errors import EvaluationError
from isogclr.evaluation.in_training import evaluate_model, locate_suite
from isogclr.evaluation.suites import CLASSIFICATION, RETRIEVAL, metric_names
from support.evaluation_data import (
    Tiny,
    class_names,
    pairs,
    tiny_model,
    write_classification_copy,
    write_retrieval_copy,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_retrieval_copy(tmp_path / "flickr30k", pairs(12))
    write_classification_copy(tmp_path / "cifar10", class_names(10), range(10))
    return tmp_path


@pytest.fixture
def tiny() -> Tiny:
    return tiny_model()


NAMES = ("flickr30k", "cifar10")


@pytest.mark.parametrize("workers", [0, 1])
def test_flat_numbers_and_no_traces(
    root: Path, tiny: Tiny, workers: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.model.train()
    tiny.model.visual.eval()  # a locked tower
    modes = [module.training for module in tiny.model.modules()]
    weights = {name: tensor.clone() for name, tensor in tiny.model.state_dict().items()}
    states = torch.get_rng_state(), random.getstate(), str(np.random.get_state())  # noqa: NPY002 (the global one)
    found = evaluate_model(
        tiny.model,
        tiny.preprocess,
        tiny.tokenizer,
        locate_suite("paper", root, NAMES),
        batch_size=5,
        workers=workers,
    )
    assert set(found) == {
        *(f"flickr30k/{name}" for name in metric_names(RETRIEVAL)),
        *(f"cifar10/{name}" for name in metric_names(CLASSIFICATION)),
    }
    assert all(type(value) is float and 0 <= value <= 1 for value in found.values())
    assert [module.training for module in tiny.model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (random.getstate(), str(np.random.get_state())) == states[1:]  # noqa: NPY002
    assert all(torch.equal(tensor, weights[name]) for name, tensor in tiny.model.state_dict().items())
    assert all(parameter.grad is None for parameter in tiny.model.parameters())
    captured = capsys.readouterr()
    assert "%" not in captured.err  # no progress bars in the log
    assert not captured.out


def test_dropout_is_off(root: Path, tiny: Tiny) -> None:
    tiny.model.visual.conv1.register_forward_hook(
        lambda module, inputs, output: torch.nn.functional.dropout(output, 0.9, module.training)
    )
    located = locate_suite("paper", root, ["flickr30k"])
    tiny.model.train()
    once = evaluate_model(tiny.model, tiny.preprocess, tiny.tokenizer, located)
    tiny.model.eval()
    assert evaluate_model(tiny.model, tiny.preprocess, tiny.tokenizer, located) == once


def test_what_fails_is_logged_and_left_out(root: Path, tiny: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    located = locate_suite("paper", root, NAMES)
    (root / "flickr30k" / "test" / "1.tar").unlink()  # after the training has started
    with caplog.at_level(logging.ERROR):
        found = evaluate_model(tiny.model, tiny.preprocess, tiny.tokenizer, located)
    assert {name.split("/")[0] for name in found} == {"cifar10"}
    assert "evaluation on flickr30k failed" in caplog.text


def test_a_suite_is_checked_before_the_training(root: Path) -> None:
    with pytest.raises(EvaluationError, match=r"^suite paper: ") as error:
        locate_suite("paper", root)
    assert all(f"{name}: not found" in str(error.value) for name in ("mscoco_captions", "cifar100", "imagenet1k"))
    assert "cifar10:" not in str(error.value)
