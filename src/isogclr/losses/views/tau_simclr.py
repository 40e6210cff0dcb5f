"""TaU + SimCLR: the model puts out a temperature for each view (Zhang et al. 2021, arXiv 2110.04403)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad, softplus

from isogclr.config import TauSimCLRConfig
from isogclr.distributed import Ranks
from isogclr.losses.pairs import gather_views
from isogclr.losses.views.contrast import contrast, contrast_gradients
from isogclr.losses.views.stateless import Evaluation, StatelessViewLoss

_LOWEST_OUTPUT = -60.0  # a smaller κ would not tell excluded candidates from others in fp32


class TauSimCLRLoss(StatelessViewLoss):
    """NT-Xent with κ_i = sigmoid(e_i)/t in place of 1/τ, e_i the last output of the model for view i.

    Features are [B, D + 1]: D of unit length, and e. Difference to `simclr`: κ_i is the anchor's own, and learned.

    Args:
        config: see `TauSimCLRConfig`.
        ranks, directions: see `StatelessViewLoss`.
    """

    name = "tau-simclr"
    config_class = TauSimCLRConfig
    config: TauSimCLRConfig
    extra_outputs = 1

    def _evaluate(
        self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, differentiable: bool
    ) -> Evaluation:
        pairs = gather_views(ranks, first[:, :-1], second[:, :-1], rows)
        sigmoid = self._certainty(first, second, pairs.own_features[0])
        inverse = sigmoid / self.config.temperature
        found = contrast(pairs, [inverse], ranks, self.config.tile_rows)
        (level,), (hardness,) = found.level, found.mean_hardness
        value = found.mean([softplus(level)])
        if not differentiable:
            return Evaluation(value, None, None)
        (gradient,) = contrast_gradients(found, [logsigmoid(level)], ranks)
        # ∂softplus(v)/∂e = sigmoid(v) ∂v/∂κ ∂κ/∂e
        by_output = torch.sigmoid(level) * hardness * inverse * (1 - sigmoid)
        by_output = torch.where(found.active, by_output, 0.0) * found.share
        return Evaluation(value, *torch.cat([gradient, by_output[:, None]], dim=1).chunk(2))

    def _certainty(self, first: Tensor, second: Tensor, like: Tensor) -> Tensor:
        """sigmoid(e) of the own views, first ones before second ones, padding included: [2b]."""
        missing = like.shape[0] // 2 - first.shape[0]
        outputs = torch.cat([pad(view[:, -1].to(like.dtype), (0, missing)) for view in (first, second)])
        return torch.sigmoid(outputs.clamp(min=_LOWEST_OUTPUT))
