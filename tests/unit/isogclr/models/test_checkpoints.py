"""Checkpoints of three kinds load; whatever is none, or of another model, is refused by name."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from isogclr.cli import main
from isogclr.errors import ModelError
from isogclr.models.checkpoints import content_hash, load_model, read_weights
from support.evaluation_data import MODEL, Tiny, pairs, save_checkpoint, tiny_model, write_retrieval_copy


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return tiny_model()


def assert_same_weights(found: Any, expected: Any) -> None:
    ours, theirs = found.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_ours_needs_no_name(tmp_path: Path, tiny: Tiny, caplog: pytest.LogCaptureFixture) -> None:
    loaded = load_model(save_checkpoint(tmp_path / "epoch_1.pt", tiny.model, seed=7))
    assert_same_weights(loaded.model, tiny.model)
    assert loaded.name == MODEL
    assert loaded.weights.details["seed"] == 7
    assert not loaded.model.training
    assert torch.equal(loaded.tokenizer(["a cat"]), tiny.tokenizer(["a cat"]))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_ours_brings_a_model_that_nobody_has_registered(tmp_path: Path, tiny: Tiny) -> None:
    path = save_checkpoint(tmp_path / "epoch_1.pt", tiny.model, model="a-model-of-yesterday")
    loaded = load_model(path)
    assert_same_weights(loaded.model, tiny.model)
    assert loaded.name == "a-model-of-yesterday"
    assert loaded.tokenizer(["a cat"]).shape == (
        1,
        tiny.model.context_length,
    )  # the context length of the saved configuration


def test_preprocessing_comes_from_the_checkpoint(tmp_path: Path, tiny: Tiny) -> None:
    grey = {"mean": [0.1, 0.2, 0.3], "std": [1.0, 1.0, 1.0]}
    path = save_checkpoint(tmp_path / "epoch_1.pt", tiny.model, preprocess_cfg=grey)
    assert load_model(path).model.visual.preprocess_cfg["mean"] == [0.1, 0.2, 0.3]


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
@pytest.mark.parametrize("kind", ["open_clip_train", "state_dict"])
def test_open_clips(tmp_path: Path, tiny: Tiny, kind: str, prefix: str) -> None:
    state = {prefix + name: tensor for name, tensor in tiny.model.state_dict().items()}
    optimizer = torch.optim.AdamW(tiny.model.parameters())
    content: Any = state
    if kind == "open_clip_train":
        content = {"epoch": 30, "name": "run", "state_dict": state, "optimizer": optimizer.state_dict()}
    torch.save(content, tmp_path / "epoch_30.pt")
    with pytest.raises(ModelError, match=r"epoch_30.pt does not say which model it is of.*--model NAME"):
        load_model(tmp_path / "epoch_30.pt")
    loaded = load_model(tmp_path / "epoch_30.pt", MODEL)
    assert_same_weights(loaded.model, tiny.model)
    assert loaded.weights.epoch == (30 if kind == "open_clip_train" else None)


def test_siglips_bias_belongs_to_the_model(tmp_path: Path, tiny: Tiny) -> None:
    state = dict(tiny.model.state_dict(), logit_bias=torch.tensor([-9.5]))
    state["logit_scale"] = state["logit_scale"].reshape(1)
    torch.save(state, tmp_path / "siglip.pt")
    loaded = load_model(tmp_path / "siglip.pt", MODEL)
    assert loaded.model.logit_bias.item() == -9.5
    assert main(["export", str(tmp_path / "siglip.pt"), str(tmp_path / "exported"), "--model", MODEL]) == 0
    assert_same_weights(load_with_open_clip(f"local-dir:{tmp_path / 'exported'}"), loaded.model)


_TRAIN = """
import sys
from isogclr.models import model_configs
model_configs.register()
from open_clip_train.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_checkpoint_that_open_clip_train_has_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its program, its loop, its checkpoint: one epoch on synthetic pictures."""
    flags = ["--dataset-type", "synthetic", "--train-num-samples", "8", "--batch-size", "4", "--epochs", "1"]
    flags += ["--workers", "0", "--warmup", "1"]
    flags += ["--model", MODEL, "--precision", "fp32", "--logs", str(tmp_path), "--name", "run"]
    command = [sys.executable, "-c", _TRAIN, *flags]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    path = tmp_path / "run" / "checkpoints" / "epoch_1.pt"
    loaded = load_model(path, MODEL)
    assert_same_weights(loaded.model, load_with_open_clip(MODEL, path))
    assert loaded.weights.epoch == 1
    assert loaded.weights.details == {}
    write_retrieval_copy(tmp_path / "data" / "emoji", pairs(12, (2,)))
    flags = ["--data-root", str(tmp_path / "data"), "--dataset", "emoji", "--output", str(tmp_path / "out")]
    assert main(["eval", "--checkpoint", str(path), "--model", MODEL, *flags, "--quiet"]) == 0
    assert "run/epoch_1  not known" in capsys.readouterr().out


def load_with_open_clip(name: str, path: Path | None = None) -> Any:
    import open_clip  # noqa: PLC0415

    return open_clip.create_model(name, pretrained=None if path is None else str(path))


def test_safetensors(tmp_path: Path, tiny: Tiny) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    save_file(tiny.model.state_dict(), tmp_path / "model.safetensors")
    assert_same_weights(load_model(tmp_path / "model.safetensors", MODEL).model, tiny.model)
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="can not be read as a checkpoint"):
        load_model(tmp_path / "broken.safetensors", MODEL)


def test_a_checkpoint_of_another_model(tmp_path: Path, tiny: Tiny) -> None:
    state = tiny.model.state_dict()
    removed = [name for name in state if name.startswith("visual.transformer.resblocks.1.")]
    for name in removed:
        state[f"visual.other.{name}"] = state.pop(name)
    state["text_projection"] = state["text_projection"][:, :32]
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(ModelError, match="does not match the model") as error:
        load_model(tmp_path / "other.pt", MODEL)
    message = str(error.value)
    assert f"does not match the model {MODEL}" in message
    assert f"{len(removed)} missing (visual.transformer.resblocks.1." in message
    assert f"{len(removed)} unexpected (visual.other." in message
    assert "1 of another shape (text_projection (64, 32) instead of (64, 64))" in message
    assert message.count("resblocks.1.") <= 8  # a summary, no list of all weights


def test_model_names(tmp_path: Path, tiny: Tiny) -> None:
    path = save_checkpoint(tmp_path / "epoch_1.pt", tiny.model)
    with pytest.raises(ModelError, match="open_clip knows no model 'ViT-Z'"):
        load_model(path, "ViT-Z")
    with pytest.raises(ModelError, match="does not match the model RN50"):
        load_model(path, "RN50")  # the name wins over the checkpoint's own


class Foreign:
    """Something that can not be rebuilt from tensors and plain values."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state_dict": {}}, "is no checkpoint of a model"),
        ({"epoch": 3, "optimizer": {}}, "is no checkpoint of a model: .* found epoch, optimizer"),
        ({"state_dict": [1, 2]}, "is no checkpoint of a model"),
        ([torch.zeros(2)], "holds a list, no checkpoint"),
        (
            {"state_dict": {}, "args": argparse.Namespace(lr=1)},
            "can not be read as a checkpoint of tensors and plain",
        ),
    ],
)
def test_files_that_are_no_checkpoint(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "it.pt")
    with pytest.raises(ModelError, match=message):
        read_weights(tmp_path / "it.pt")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut off"])
def test_files_that_are_anything(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "it.pt").write_bytes(content)
    with pytest.raises(ModelError, match=r"it\.pt can not be read as a checkpoint"):
        read_weights(tmp_path / "it.pt")


def test_a_half_copied_checkpoint(tmp_path: Path, tiny: Tiny) -> None:
    path = save_checkpoint(tmp_path / "epoch_1.pt", tiny.model)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(ModelError, match="can not be read as a checkpoint"):
        load_model(path)


def test_no_file(tmp_path: Path) -> None:
    for missing in (tmp_path, tmp_path / "nothing.pt"):
        with pytest.raises(ModelError, match="is no file; a checkpoint"):
            read_weights(missing)
        with pytest.raises(ModelError, match="is no file; a checkpoint"):
            content_hash(missing)


def test_a_text_is_no_checkpoint(tmp_path):
    """torch's unpickler says `KeyError: 105` of it."""
    path = tmp_path / "notes.txt"
    path.write_text("hi there", encoding="utf-8")
    with pytest.raises(ModelError, match=r"it is no file that torch\.save has written, or is cut short"):
        read_weights(path)
