"""Embeddings of samples by the model of a checkpoint, for the report: torch on this side, numpy on the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from isogclr.errors import ModelError
from isogclr.evaluation.metrics import require_finite
from isogclr.models.backbones import create_projector, projector_widths
from isogclr.models.checkpoints import Weights, is_unimodal, load_model, load_state, read_weights
from isogclr.models.encoder import Encoder
from isogclr.models.view_checkpoints import load_backbone

Features = npt.NDArray[np.float32]
_PROJECTOR = "projector."


def load_embedder(
    checkpoint: Path, model: str | None = None, device: str = "cpu"
) -> PairEmbedder | PictureEmbedder:
    """By what the checkpoint says of itself.

    Args:
        checkpoint: of training.main or of training.unimodal, or another that `isogclr eval` would take.
        model: open_clip's name of the model, for a checkpoint that does not say it.
    """
    weights = read_weights(checkpoint)
    if is_unimodal(weights):
        return PictureEmbedder(checkpoint, weights, device)
    return PairEmbedder(checkpoint, weights, model, device)


class PairEmbedder:
    """The towers of a model of pictures and captions."""

    def __init__(self, checkpoint: Path, weights: Weights, model: str | None, device: str) -> None:
        loaded = load_model(checkpoint, model, device, weights)
        self._encoder = Encoder(loaded.model, loaded.preprocess, loaded.tokenizer, device)

    def images(self, images: Sequence[Any]) -> tuple[Features, Features]:
        """[B, D], of unit length, twice: the loss compares what the model gives. `images` are Pillow's, in RGB."""
        pixels = torch.stack([self._encoder.preprocess(image) for image in images])
        features: Features = self._encoder.unit_images(pixels).cpu().numpy()
        return features, features

    def texts(self, captions: Sequence[str]) -> Features:
        """[B, D], of unit length."""
        features: Features = self._encoder.unit_texts(list(captions)).cpu().numpy()
        return features


class PictureEmbedder:
    """Backbone and projector of a model of two views.

    Neighbours and maps are about what is handed on and evaluated, the backbone's features. Temperatures and the
    weights of negatives are about what the loss compares, the projector's: among others they mean nothing.
    """

    def __init__(self, checkpoint: Path, weights: Weights, device: str) -> None:
        loaded = load_backbone(checkpoint, device, weights)
        self._backbone, self._preprocess = loaded.backbone, loaded.preprocessing()
        self._projector, self._width = _projector(weights, loaded.width)
        self._projector = self._projector.to(device).eval().requires_grad_(False)
        self._device = torch.device(device)

    @torch.no_grad()
    def images(self, images: Sequence[Any]) -> tuple[Features, Features]:
        """The backbone's features [B, D] and the projector's [B, E], both of unit length."""
        pixels = torch.stack([self._preprocess(image) for image in images]).to(self._device)
        features = self._backbone(pixels)
        projected = self._projector(features)[:, : self._width]
        return _unit("features of the backbone", features), _unit("features of the projector", projected)

    def texts(self, captions: Sequence[str]) -> Features:
        """Such a model has no tower for them."""
        raise ModelError(
            f"{len(captions)} captions for a model of pictures alone: its checkpoint has no text tower"
        )


def _projector(weights: Weights, width: int) -> tuple[nn.Module, int]:
    """With its weights, and how many of its outputs are features: a loss may have asked for more."""
    text = str(weights.details.get("projector"))
    last = projector_widths(text)[-1]
    state = {
        name.removeprefix(_PROJECTOR): value for name, value in weights.state.items() if name.startswith(_PROJECTOR)
    }
    outputs = next((len(value) for value in reversed(state.values()) if value.ndim == 2), last)
    projector = create_projector(width, text, max(0, outputs - last))
    load_state(projector, state, weights.path, f"a projector {text}", "the file is damaged, or newer")
    return projector, last


def _unit(name: str, features: Tensor) -> Features:
    require_finite(name, features)
    found: Features = normalize(features.float(), dim=1).cpu().numpy()
    return found
