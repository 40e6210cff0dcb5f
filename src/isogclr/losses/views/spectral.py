"""The spectral contrastive loss (HaoChen et al. 2021, arXiv 2106.04156)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from isogclr.config import SpectralConfig
from isogclr.distributed import Ranks
from isogclr.losses.kernel import Pairs
from isogclr.losses.pairs import gather_pairs, number_of_negatives, pair_share
from isogclr.losses.views.stateless import Evaluation, StatelessViewLoss


class SpectralLoss(StatelessViewLoss):
    """(1/μ) [−2 mean_i z¹_i·z²_i + mean_{i≠j} (z¹_i·z²_j)²], features cut to the length √μ.

    The second mean is over the B(B − 1) pairs of different pictures. Cut means: longer ones are shortened, shorter
    ones stay. Difference to the others: no softmax, and lengths are learned.

    Args:
        config: see `SpectralConfig`.
        ranks, directions: see `StatelessViewLoss`.
    """

    name = "spectral"
    config_class = SpectralConfig
    config: SpectralConfig
    unit_features = False

    def _evaluate(
        self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, differentiable: bool
    ) -> Evaluation:
        mu = self.config.squared_norm
        pairs = gather_pairs(ranks, first, second, rows, mask_positives=True)
        limit = math.sqrt(mu)
        own = [_cut(side, limit) for side in pairs.own_features]
        everyone = [_cut(side, limit) for side in pairs.all_features]
        attraction = 2 * pair_share(pairs, ranks) / mu
        repulsion = ranks.size / number_of_negatives(pairs).sum().clamp(min=1).to(own[0].dtype) / mu
        present = pairs.own_rows >= 0
        similarity = [_negatives(pairs, own[0], everyone[1]), _negatives(pairs, own[1], everyone[0])]
        positive = torch.where(present, (own[0] * own[1]).sum(dim=1), 0.0)
        value = repulsion * similarity[0].square().sum() - attraction * positive.sum()
        if not differentiable:
            return Evaluation(value, None, None)
        gradients = []
        for side in (0, 1):
            by_cut = 2 * repulsion * similarity[side] @ everyone[1 - side]
            by_cut -= attraction * torch.where(present[:, None], own[1 - side], 0.0)
            gradients.append(_through_cut(pairs.own_features[side], by_cut, limit))
        return Evaluation(value, *gradients)


def _negatives(pairs: Pairs, anchors: Tensor, candidates: Tensor) -> Tensor:
    """Similarities of the own anchors with all candidates, [b, B]; 0 for the same picture and for padding."""
    own, everyone = pairs.own_rows[:, None], pairs.all_rows
    return (anchors @ candidates.t()).masked_fill_((own == everyone) | (own < 0) | (everyone < 0), 0.0)


def _cut(features: Tensor, limit: float) -> Tensor:
    """Of length `limit` at most."""
    length = features.norm(dim=1, keepdim=True)
    cut: Tensor = features * (limit / length.clamp(min=limit))
    return cut


def _through_cut(features: Tensor, gradient: Tensor, limit: float) -> Tensor:
    """∂/∂z of what has the gradient in the cut features: where it was cut, z has no effect along itself."""
    length = features.norm(dim=1, keepdim=True)
    along = features * ((features * gradient).sum(dim=1, keepdim=True) / length.square())
    return torch.where(length > limit, (gradient - along) * (limit / length), gradient)
