"""Embeddings of samples by the model of a checkpoint, for the report: torch on this side, numpy on the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from isogclr.models.checkpoints import load_model
from isogclr.models.encoder import Encoder

Features = npt.NDArray[np.float32]


class Embedder:
    """The towers of a checkpoint as functions of pictures and of captions.

    Args:
        checkpoint: a file that `isogclr eval` would take.
        model: open_clip's name of the model, for a checkpoint that does not say it.
    """

    def __init__(self, checkpoint: Path, model: str | None = None, device: str = "cpu") -> None:
        loaded = load_model(checkpoint, model, device)
        self._encoder = Encoder(loaded.model, loaded.preprocess, loaded.tokenizer, device)

    def images(self, images: Sequence[Any]) -> Features:
        """[B, D], of unit length; `images` are Pillow's, in RGB."""
        pixels = torch.stack([self._encoder.preprocess(image) for image in images])
        features: Features = self._encoder.unit_images(pixels).cpu().numpy()
        return features

    def texts(self, captions: Sequence[str]) -> Features:
        """[B, D], of unit length."""
        features: Features = self._encoder.unit_texts(list(captions)).cpu().numpy()
        return features
