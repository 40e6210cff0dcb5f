"""VICReg: variance, invariance, covariance (Bardes et al. 2022, arXiv 2105.04906)."""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import relu

from isogclr.config import VICRegConfig
from isogclr.distributed import Ranks
from isogclr.losses.base import ContrastiveLoss
from isogclr.losses.views.stateless import Evaluation, StatelessViewLoss
from isogclr.losses.views.whole_batch import Side, off_diagonal_squares, whole_batch

_EPSILON = 1e-4  # in the variance


class VICRegLoss(StatelessViewLoss):
    """25 mean (z¹ − z²)² + 25 ½ Σ_sides mean_k max(0, 1 − σ_k) + Σ_sides Σ_{k≠l} C_kl² / D over the global batch.

    σ_k = √(variance + 1e-4) and the covariances C have 1/(B − 1). It has no negatives: a picture that is drawn
    twice counts twice.

    With two directions it is a loss of images and texts. Deviation: the authors' code gives it the projections
    before they are normalised, but open_clip's models hand over unit features, none of which can have σ_k = 1. So
    these are multiplied by √D first, to a mean square of 1.

    Args:
        config: see `VICRegConfig`.
        ranks: see `StatelessViewLoss`.
        directions: two for images and texts, one for two views.
    """

    name = "vicreg"
    config_class = VICRegConfig
    config: VICRegConfig
    unit_features = False
    directions = ContrastiveLoss.directions

    def __init__(
        self,
        config: VICRegConfig | None = None,
        ranks: Ranks | None = None,
        directions: tuple[str, ...] = ContrastiveLoss.directions,
    ) -> None:
        super().__init__(config, ranks, directions)
        self.unit_features = len(directions) == 2

    def _evaluate(
        self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, differentiable: bool
    ) -> Evaluation:
        return whole_batch(ranks, first, second, rows, self._value, differentiable)

    def _value(self, first: Side, second: Side) -> Tensor:
        dimension = first.features.shape[1]
        scale = math.sqrt(dimension) if self.unit_features else 1.0
        distance = scale * (first.features - second.features)
        value = self.config.invariance_weight * distance.square().sum() / (first.count * dimension)
        for side in (first, second):
            centred = scale * side.centred() / (side.count - 1).clamp(min=1).sqrt()  # C = centredᵀ centred
            deviation = (centred.square().sum(dim=0) + _EPSILON).sqrt()
            value = value + self.config.variance_weight / 2 * relu(1 - deviation).mean()
            value = value + self.config.covariance_weight / dimension * off_diagonal_squares(centred, centred)
        return value
