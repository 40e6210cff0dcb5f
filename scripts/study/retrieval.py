"""Recall between pictures and captions, where a picture may have several captions."""

from __future__ import annotations

import torch
from torch import Tensor

RANKS = (1, 5, 10)


def recalls(images: Tensor, texts: Tensor, own: Tensor) -> dict[str, float]:
    """In percent: a picture finds any of its captions, a caption its picture, within the first 1, 5, 10.

    Args:
        images: [P, D], unit.
        texts: [T, D], unit.
        own: [T], which picture a caption belongs to.
    """
    similarity = images @ texts.T  # [P, T]
    most = max(RANKS)
    best_texts = similarity.topk(min(most, len(texts)), dim=1).indices  # [P, k]
    best_images = similarity.T.topk(min(most, len(images)), dim=1).indices  # [T, k]
    hits = {
        "image_to_text": own[best_texts] == torch.arange(len(images))[:, None],
        "text_to_image": best_images == own[:, None],
    }
    found = {
        f"{name}_R@{rank}": 100 * hit[:, :rank].any(dim=1).double().mean().item()
        for name, hit in hits.items()
        for rank in RANKS
    }
    return {**found, "mean_recall": sum(found.values()) / len(found)}
