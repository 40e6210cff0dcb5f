"""`isogclr export` of a checkpoint of training.unimodal: torchvision loads it and computes the same features."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torchvision
from safetensors.torch import load_file

from isogclr.cli import main
from isogclr.models.view_checkpoints import load_backbone
from support.view_checkpoints import save_view_checkpoint


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_torchvision_loads_it(tmp_path: Path, stem: str, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = save_view_checkpoint(tmp_path / "epoch_2.pt", "resnet18", stem)
    folder = tmp_path / "exported"
    assert main(["export", str(checkpoint), str(folder)]) == 0
    advice = capsys.readouterr().out.split("load it so:\n")[1]
    assert {path.name for path in folder.iterdir()} == {
        "backbone.json",
        "backbone.pt",
        "backbone.safetensors",
        "README.md",
    }
    plain, safe = torch.load(folder / "backbone.pt", weights_only=True), load_file(folder / "backbone.safetensors")
    assert plain.keys() == safe.keys()
    assert all(torch.equal(plain[name], safe[name]) for name in plain)
    if stem == "imagenet":
        keys = torchvision.models.resnet18().load_state_dict(plain, strict=False)
        assert (sorted(keys.missing_keys), keys.unexpected_keys) == (["fc.bias", "fc.weight"], [])
    names: dict[str, object] = {}
    exec(advice, names)  # what the command told to do, word by word
    model = names["model"]
    assert isinstance(model, torch.nn.Module)
    inputs = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(model.eval()(inputs), load_backbone(checkpoint).backbone(inputs))
    facts = json.loads((folder / "backbone.json").read_text())
    assert (facts["backbone"], facts["stem"], facts["width"]) == ("resnet18", stem, 512)
    assert facts["preprocessing"] == {"image_size": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    assert (facts["training"]["loss"], facts["training"]["epoch"]) == ("isogclr", 2)
    assert advice.strip().split("\n")[1] in (folder / "README.md").read_text()


def test_a_backbone_that_torchvision_has_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = save_view_checkpoint(tmp_path / "epoch_2.pt")
    assert main(["export", str(checkpoint), str(tmp_path / "exported")]) == 0
    names: dict[str, object] = {}
    exec(capsys.readouterr().out.split("load it so:\n")[1], names)
    inputs = torch.rand(2, 3, 32, 32)
    model = names["model"]
    assert isinstance(model, torch.nn.Module)
    with torch.no_grad():
        assert torch.equal(model.eval()(inputs), load_backbone(checkpoint).backbone(inputs))
    assert main(["export", str(checkpoint), str(tmp_path / "other"), "--model", "RN50"]) == 2
    assert "is of training.unimodal and knows its backbone" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
