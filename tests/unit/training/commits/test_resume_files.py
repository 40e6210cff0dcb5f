"""What `--resume` makes of a file: its weights, or a refusal that says what to do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from isogclr.errors import ConfigError, DamagedFileError, TrainingError
from training.commits.resume import Resumed, load_checkpoint, load_weights


class Wrapped(nn.Module):
    """As DistributedDataParallel names its weights."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_weights_find_their_names(prefix: str, is_wrapped: bool) -> None:
    saved, inner = nn.Linear(3, 2), nn.Linear(3, 2)
    state = {prefix + name: value for name, value in saved.state_dict().items()}
    load_weights(Resumed(Path("x.pt"), state, None, None), Wrapped(inner) if is_wrapped else inner)
    assert torch.equal(inner.weight, saved.weight)
    assert torch.equal(inner.bias, saved.bias)


def test_weights_of_another_model() -> None:
    resumed = Resumed(Path("x.pt"), {"module.other": torch.zeros(1)}, None, None)
    with pytest.raises(TrainingError, match=r"x\.pt: its weights do not fit the model .*Missing key.*--model"):
        load_weights(resumed, Wrapped(nn.Linear(3, 2)))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([torch.zeros(2)], "it holds a list"),
        ({"args": argparse.Namespace(lr=1)}, "it asks for argparse.Namespace"),
        (b"", "EOFError: no reason given"),
        (b"not a checkpoint", "it is in no format that can be read"),
    ],
)
def test_files_that_are_no_checkpoint(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "it.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(DamagedFileError) as caught:
        load_checkpoint(path)
    message = str(caught.value)
    assert "it.pt: found a file that torch can not load" in message
    assert words in message
    assert message.endswith("resume from an earlier one")
    assert "weights_only" not in message


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--resume .*gone\.pt: there is no such file"):
        load_checkpoint(tmp_path / "gone.pt")
