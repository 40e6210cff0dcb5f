"""Checkpoints as training.unimodal writes them, with random weights, and pictures that these can tell apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


def save_view_checkpoint(
    path: Path, backbone: str = "tiny", stem: str = "cifar", weights: int = 0, **facts: Any
) -> Path:
    """A backbone and a small projector.

    Args:
        weights: seed of the weights.
        facts: of the checkpoint, beyond or instead of the usual ones.
    """
    import torch  # noqa: PLC0415

    from isogclr.models.backbones import ViewModel, create_backbone, create_projector  # noqa: PLC0415

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(weights)
        body = create_backbone(backbone, stem)
        model = ViewModel(body, create_projector(int(body.width), "16-16"))  # type: ignore[arg-type]
    ours = {
        "kind": "unimodal",
        "loss": "isogclr",
        "loss_config": {"rho": 0.4},
        "backbone": backbone,
        "stem": stem,
        "projector": "16-16",
        "image_size": 32,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.25, 0.25, 0.25],
        "classes": None,
        "imbalance": None,
        "long_tail_seed": None,
        "data": "somewhere",
        "seed": 0,
        "versions": {},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"epoch": 2, "name": "run", "state_dict": model.state_dict(), "optimizer": {}}
    torch.save({**content, "isogclr": ours | facts}, path)
    return path


def coloured_pixels(labels: npt.NDArray[np.int64], seed: int = 0) -> npt.NDArray[np.uint8]:
    """[N, 3, 32, 32]: one of 27 colours per class, with noise: even random weights see the difference."""
    random = np.random.default_rng(seed)
    colours = 40 + 85 * np.stack([labels // 9 % 3, labels // 3 % 3, labels % 3], axis=1)
    noise = random.normal(0, 12, (len(labels), 3, 1, 1)) + random.normal(0, 12, (len(labels), 3, 32, 32))
    pixels: npt.NDArray[np.uint8] = np.clip(colours[:, :, None, None] + noise, 0, 255).astype(np.uint8)
    return pixels
