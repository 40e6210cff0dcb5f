"""Barlow Twins: features of two views correlate with themselves only (Zbontar et al. 2021, arXiv 2103.03230)."""

from __future__ import annotations

import torch
from torch import Tensor

from isogclr.config import BarlowTwinsConfig
from isogclr.distributed import Ranks
from isogclr.losses.views.stateless import Evaluation, StatelessViewLoss
from isogclr.losses.views.whole_batch import Side, off_diagonal_squares, whole_batch

_EPSILON = 1e-5  # in the variance, as its authors' batch norm has it


class BarlowTwinsLoss(StatelessViewLoss):
    """Σ_k (1 − C_kk)² + λ Σ_{k≠l} C_kl², C [D, D] the correlations of the features of view 1 with those of view 2.

    Over the global batch: C = Ẑ¹ᵀ Ẑ² / B, with features centred and divided by √(variance + 1e-5), the variance
    with 1/B. It has no negatives: a picture that is drawn twice counts twice.

    Args:
        config: see `BarlowTwinsConfig`.
        ranks, directions: see `StatelessViewLoss`.
    """

    name = "barlow-twins"
    config_class = BarlowTwinsConfig
    config: BarlowTwinsConfig
    unit_features = False

    def _evaluate(
        self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, differentiable: bool
    ) -> Evaluation:
        return whole_batch(ranks, first, second, rows, self._value, differentiable)

    def _value(self, first: Side, second: Side) -> Tensor:
        one, other = (_standardized(side) / side.count.sqrt() for side in (first, second))  # C = oneᵀ other
        invariance = (1 - (one * other).sum(dim=0)).square().sum()
        return invariance + self.config.redundancy_weight * off_diagonal_squares(one, other)


def _standardized(side: Side) -> Tensor:
    centred = side.centred()
    return centred * torch.rsqrt(centred.square().sum(dim=0) / side.count + _EPSILON)
