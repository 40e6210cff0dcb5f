"""The folder of `isogclr export` is what open_clip and Hugging Face expect (for clip_benchmark: test_eval.py)."""

from __future__ import annotations

from pathlib import Path

import open_clip
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors import safe_open

from isogclr.cli import main
from support.evaluation_data import MODEL, Tiny, save_checkpoint, tiny_model


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return tiny_model()


def test_open_clip_loads_it(tmp_path: Path, tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    grey = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5], "interpolation": "bilinear"}
    checkpoint = save_checkpoint(tmp_path / "epoch_1.pt", tiny.model, preprocess_cfg=grey)
    folder = tmp_path / "made" / "here"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    assert f"load it as local-dir:{folder}" in capsys.readouterr().out
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    tokens = open_clip.get_tokenizer(f"local-dir:{folder}")(["a cat on a bridge"])
    assert torch.equal(tokens, tiny.tokenizer(["a cat on a bridge"]))
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(model.eval().encode_image(images), tiny.model.encode_image(images))
        assert torch.equal(model.encode_text(tokens), tiny.model.encode_text(tokens))
    assert list(preprocess.transforms[-1].mean) == grey["mean"]
    assert preprocess.transforms[0].interpolation.value == "bilinear"


def test_hugging_face_tools_read_it(tmp_path: Path, tiny: Tiny) -> None:
    folder = tmp_path / "exported"
    assert main(["export", str(save_checkpoint(tmp_path / "epoch_1.pt", tiny.model)), str(folder)]) == 0
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "open_clip"
    assert card.data.pipeline_tag == "zero-shot-image-classification"
    assert "loss: isogclr" in card.text
    with safe_open(folder / "open_clip_model.safetensors", framework="pt") as weights:
        assert set(weights.keys()) == set(tiny.model.state_dict())
        assert weights.metadata() == {"format": "pt"}
    # what a model on the hub consists of: the names that open_clip asks the hub for
    assert {path.name for path in folder.iterdir()} == {
        open_clip.constants.HF_CONFIG_NAME,
        open_clip.constants.HF_SAFE_WEIGHTS_NAME,
        "README.md",
    }


def test_an_existing_folder_is_not_touched(tmp_path: Path, tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = save_checkpoint(tmp_path / "epoch_1.pt", tiny.model)
    (tmp_path / "mine").mkdir()
    assert main(["export", str(checkpoint), str(tmp_path / "mine")]) == 1
    assert "mine exists; name a folder that does not" in capsys.readouterr().err
    assert not list((tmp_path / "mine").iterdir())


def test_a_failure_leaves_nothing_behind(
    tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = save_checkpoint(tmp_path / "in" / "epoch_1.pt", tiny.model)

    def full(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    (tmp_path / "out").mkdir()
    assert main(["export", str(checkpoint), str(tmp_path / "out" / "x")]) == 1
    assert "no space left" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir())


def test_a_plain_state_dict_needs_its_model(tmp_path: Path, tiny: Tiny, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(tiny.model.state_dict(), tmp_path / "plain.pt")
    assert main(["export", str(tmp_path / "plain.pt"), str(tmp_path / "a")]) == 1
    assert "name it with --model NAME" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "plain.pt"), str(tmp_path / "a"), "--model", MODEL]) == 0
