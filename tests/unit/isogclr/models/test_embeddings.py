"""Features of pictures from checkpoints of training.unimodal: the backbone's, and the projector's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from isogclr.errors import ModelError
from isogclr.models.embeddings import PictureEmbedder, load_embedder
from isogclr.models.view_checkpoints import load_backbone
from support.view_checkpoints import save_view_checkpoint


@pytest.fixture
def pictures() -> list[Image.Image]:
    pixels = np.random.default_rng(0).integers(0, 256, (5, 20, 24, 3), dtype=np.uint8)
    return [Image.fromarray(one) for one in pixels]


def test_both_features(tmp_path: Path, pictures: list[Image.Image]) -> None:
    path = save_view_checkpoint(tmp_path / "epoch_1.pt")
    embed = load_embedder(path)
    assert isinstance(embed, PictureEmbedder)
    learned, compared = embed.images(pictures)
    loaded = load_backbone(path)
    features = loaded.backbone(torch.stack([loaded.preprocessing()(one) for one in pictures]))
    np.testing.assert_allclose(learned, normalize(features, dim=1).numpy(), atol=1e-6)
    state = torch.load(path, weights_only=True)["state_dict"]
    first = torch.nn.functional.batch_norm(
        features @ state["projector.0.weight"].T,
        state["projector.1.running_mean"],
        state["projector.1.running_var"],
        state["projector.1.weight"],
        state["projector.1.bias"],
    )
    expected = normalize(first.relu() @ state["projector.3.weight"].T, dim=1)
    np.testing.assert_allclose(compared, expected.numpy(), atol=1e-6)


def test_outputs_that_are_no_features(tmp_path: Path, pictures: list[Image.Image]) -> None:
    """TaU+SimCLR has one more output, which no similarity is taken of."""
    plain = save_view_checkpoint(tmp_path / "epoch_1.pt")
    content = torch.load(plain, weights_only=True)
    weight = content["state_dict"]["projector.3.weight"]
    content["state_dict"]["projector.3.weight"] = torch.cat([weight, torch.full((1, weight.shape[1]), 9.0)])
    torch.save(content, tmp_path / "epoch_2.pt")
    expected = load_embedder(plain).images(pictures)[1]
    np.testing.assert_allclose(load_embedder(tmp_path / "epoch_2.pt").images(pictures)[1], expected, atol=1e-6)


def test_a_projector_that_is_not_there(tmp_path: Path) -> None:
    path = save_view_checkpoint(tmp_path / "epoch_1.pt")
    content = torch.load(path, weights_only=True)
    content["state_dict"] = {name: one for name, one in content["state_dict"].items() if "projector" not in name}
    torch.save(content, path)
    with pytest.raises(ModelError, match="a projector 16-16"):
        load_embedder(path)


def test_captions_have_no_tower(tmp_path: Path) -> None:
    embed = load_embedder(save_view_checkpoint(tmp_path / "epoch_1.pt"))
    with pytest.raises(ModelError, match="no text tower"):
        embed.texts(["a caption"])
