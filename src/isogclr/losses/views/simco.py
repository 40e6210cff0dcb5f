"""SimCo: one temperature for negatives, another for anchors (Zhang et al. 2022, arXiv 2203.17248)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from isogclr.config import SimCoConfig
from isogclr.distributed import Ranks
from isogclr.losses.pairs import gather_pairs
from isogclr.losses.views.contrast import contrast, contrast_gradients
from isogclr.losses.views.stateless import Evaluation, StatelessViewLoss


class SimCoLoss(StatelessViewLoss):
    """mean of sg[(1 − p^β_i)/(1 − p^α_i)] (−log p^α_i), p the softmax of the partner at τ_α and at τ_β.

    The candidates of a first view are all second views, those of its own picture and of others, and the other way
    round; the mean is over both. Difference to `simclr`: how much an anchor counts is decided at τ_β, and views of
    the same side do not meet. There is no queue: that is SimCo's point against MoCo.

    Args:
        config: see `SimCoConfig`.
        ranks, directions: see `StatelessViewLoss`.
    """

    name = "simco"
    config_class = SimCoConfig
    config: SimCoConfig

    def _evaluate(
        self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, differentiable: bool
    ) -> Evaluation:
        pairs = gather_pairs(ranks, first, second, rows, mask_positives=True)
        ones, tile_rows = torch.ones_like(pairs.own_features[0][:, 0]), self.config.tile_rows
        # Its similarities are dropped before those of the other temperature are made.
        of_anchors = contrast(pairs, [ones / self.config.anchor_temperature] * 2, ranks, tile_rows).level
        found = contrast(pairs, [ones / self.config.temperature] * 2, ranks, tile_rows)
        log_weight = [logsigmoid(level) for level in of_anchors]  # log(1 − p^β), what multiplies ∇v at τ_α
        value = found.mean(
            [log_a.exp() * _relative(level) for log_a, level in zip(log_weight, found.level, strict=True)]
        )
        if not differentiable:
            return Evaluation(value, None, None)
        return Evaluation(value, *contrast_gradients(found, log_weight, ranks))


def _relative(level: Tensor) -> Tensor:
    """−log p / (1 − p) from v = log((1 − p)/p), which is 1 in the limit of p = 1."""
    level = level.clamp(min=-30.0)  # below, the two can not be told from each other, and are too small to divide
    return softplus(level) / torch.sigmoid(level)
