"""SimCLR: NT-Xent over two views of each picture (Chen et al. 2020, arXiv 2002.05709)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from isogclr.config import SimCLRConfig
from isogclr.distributed import Ranks
from isogclr.losses.pairs import gather_views
from isogclr.losses.views.contrast import contrast, contrast_gradients
from isogclr.losses.views.stateless import Evaluation, StatelessViewLoss


class SimCLRLoss(StatelessViewLoss):
    """mean_i −log [exp(s⁺_i/τ) / (exp(s⁺_i/τ) + Σ_{j ∈ N_i} exp(s_ij/τ))] over 2B anchors, the views.

    N_i are the 2B − 2 views of other pictures. Difference to `flatclr`: an anchor counts the less, the better its
    partner is found already.

    Args:
        config: see `SimCLRConfig`.
        ranks, directions: see `StatelessViewLoss`.
    """

    name = "simclr"
    config_class = SimCLRConfig
    config: SimCLRConfig

    def _evaluate(
        self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, differentiable: bool
    ) -> Evaluation:
        pairs = gather_views(ranks, first, second, rows)
        inverse = torch.full_like(pairs.own_features[0][:, 0], 1 / self.config.temperature)
        found = contrast(pairs, [inverse], ranks, self.config.tile_rows)
        (level,) = found.level
        value = found.mean([softplus(level)])
        if not differentiable:
            return Evaluation(value, None, None)
        (gradient,) = contrast_gradients(found, [self._log_weight(level)], ranks)
        return Evaluation(value, *gradient.chunk(2))

    def _log_weight(self, level: Tensor) -> Tensor:
        """log of what multiplies ∇v_i: 1 − p_i."""
        return logsigmoid(level)
