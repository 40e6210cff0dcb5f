"""Backbones of checkpoints: the same features as in training, and clear words about any other file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isogclr.errors import ModelError
from isogclr.models.backbones import create_backbone
from isogclr.models.checkpoints import load_model, read_weights
from isogclr.models.view_checkpoints import load_backbone
from support.view_checkpoints import save_view_checkpoint


def test_the_backbone_without_its_projector(tmp_path: Path) -> None:
    path = save_view_checkpoint(tmp_path / "epoch_2.pt", weights=7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        expected = create_backbone("tiny", "cifar").eval()
    loaded = load_backbone(path)
    inputs = torch.rand(3, 3, 32, 32)
    found = loaded.backbone(inputs)
    assert found.shape == (3, loaded.width)
    assert torch.equal(found, expected(inputs))
    assert not found.requires_grad
    assert not any(module.training for module in loaded.backbone.modules())
    assert loaded.name == "tiny (cifar stem)"
    preprocessing = loaded.preprocessing()
    assert (preprocessing.image_size, preprocessing.mean, preprocessing.std) == (32, (0.5,) * 3, (0.25,) * 3)


def test_names_of_wrappers_do_not_matter(tmp_path: Path) -> None:
    path = save_view_checkpoint(tmp_path / "epoch_2.pt")
    content = torch.load(path, weights_only=True)
    content["state_dict"] = {f"module.{name}": value for name, value in content["state_dict"].items()}
    torch.save(content, tmp_path / "wrapped.pt")
    inputs = torch.rand(2, 3, 32, 32)
    assert torch.equal(
        load_backbone(tmp_path / "wrapped.pt").backbone(inputs), load_backbone(path).backbone(inputs)
    )


def test_other_checkpoints_are_refused_by_name(tmp_path: Path) -> None:
    torch.save({"state_dict": {"a": torch.zeros(1)}, "isogclr": {"model": "RN50"}}, tmp_path / "clip.pt")
    with pytest.raises(ModelError, match=r"training.main \(model RN50\), which `isogclr eval` measures"):
        load_backbone(tmp_path / "clip.pt")
    torch.save({"a": torch.zeros(1)}, tmp_path / "plain.pt")
    with pytest.raises(ModelError, match="does not say which backbone it is of; a checkpoint of"):
        load_backbone(tmp_path / "plain.pt")
    with pytest.raises(ModelError, match=r"no\.pt is no file"):
        load_backbone(tmp_path / "no.pt")
    views = save_view_checkpoint(tmp_path / "views.pt")
    with pytest.raises(ModelError, match=r"training.unimodal \(backbone tiny\), which `isogclr linear` measures"):
        load_model(views)


def test_facts_and_weights_that_do_not_fit(tmp_path: Path) -> None:
    path = save_view_checkpoint(tmp_path / "a.pt", image_size=None, mean=[0.5])
    with pytest.raises(ModelError, match="missing image_size, not three numbers mean"):
        load_backbone(path)
    path = save_view_checkpoint(tmp_path / "b.pt")
    content = torch.load(path, weights_only=True)
    del content["state_dict"]["backbone.0.0.weight"]
    torch.save(content, path)
    with pytest.raises(ModelError, match=r"1 missing \(0.0.weight\); the file is damaged, or newer"):
        load_backbone(path)
    with pytest.raises(ModelError, match="there is no backbone 'vgg'"):
        load_backbone(path, weights=read_weights(_with(path, backbone="vgg")))


def _with(path: Path, **facts: str) -> Path:
    content = torch.load(path, weights_only=True)
    content["isogclr"] |= facts
    torch.save(content, path)
    return path
