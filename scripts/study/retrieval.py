"""Recall between pictures and captions; a picture may have several captions, a caption several pictures."""

from __future__ import annotations

import torch
from torch import Tensor

RANKS = (1, 5, 10)
ROWS = 1024  # queries at a time


def recalls(images: Tensor, texts: Tensor, image_group: Tensor, text_group: Tensor) -> dict[str, float]:
    """In percent: the share of queries with one of their own within the first 1, 5, 10; and the mean of all six.

    Args:
        images: [P, D], unit.
        texts: [T, D], unit.
        image_group: [P]; a picture and a caption belong together if their groups are equal.
        text_group: [T].
    """
    ranks = {
        "image_to_text": first_hit(images, texts, image_group, text_group),
        "text_to_image": first_hit(texts, images, text_group, image_group),
    }
    found = {
        f"{name}_R@{rank}": 100 * (first < rank).double().mean().item()
        for name, first in ranks.items()
        for rank in RANKS
    }
    return {**found, "mean_recall": sum(found.values()) / len(found)}


def first_hit(queries: Tensor, candidates: Tensor, wanted: Tensor, groups: Tensor) -> Tensor:
    """How many candidates stand before the first of the query's own, up to the largest rank, [Q]."""
    most = min(max(RANKS), len(candidates))
    found = []
    for start in range(0, len(queries), ROWS):
        best = (queries[start : start + ROWS] @ candidates.T).topk(most, dim=1).indices  # [q, k]
        hit = groups[best] == wanted[start : start + ROWS, None]
        found.append(torch.where(hit.any(dim=1), hit.int().argmax(dim=1), most))
    return torch.cat(found)
