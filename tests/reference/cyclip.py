"""CyCLIP as its paper writes it (Goel et al. 2022), in float64 loops over pairs; gradients by autograd."""

from __future__ import annotations

import torch
from torch import Tensor


def cyclip(
    images: Tensor, texts: Tensor, scale: Tensor, in_modal_weight: float = 0.25, cross_modal_weight: float = 0.25
) -> Tensor:
    """L_CLIP + λ_1 L_in-modal + λ_2 L_cross-modal, each cyclic term Σ_j Σ_k (·)² / N."""
    n = len(images)
    contrast, in_modal, cross_modal = torch.zeros(3, dtype=torch.float64)
    for j in range(n):
        to_texts = torch.stack([scale * (images[j] @ texts[k]) for k in range(n)])
        to_images = torch.stack([scale * (images[k] @ texts[j]) for k in range(n)])
        contrast = contrast - 0.5 * (to_texts[j] - torch.logsumexp(to_texts, 0)) / n
        contrast = contrast - 0.5 * (to_images[j] - torch.logsumexp(to_images, 0)) / n
        for k in range(n):
            in_modal = in_modal + (images[j] @ images[k] - texts[j] @ texts[k]) ** 2 / n
            cross_modal = cross_modal + (images[j] @ texts[k] - images[k] @ texts[j]) ** 2 / n
    return contrast + in_modal_weight * in_modal + cross_modal_weight * cross_modal
