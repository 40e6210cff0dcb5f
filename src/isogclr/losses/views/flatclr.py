"""FlatCLR: the contrast of SimCLR without its vanishing gradient (FlatNCE, Chen et al. 2021, arXiv 2107.01152)."""

from __future__ import annotations

import torch
from torch import Tensor

from isogclr.config import FlatCLRConfig
from isogclr.losses.views.simclr import SimCLRLoss


class FlatCLRLoss(SimCLRLoss):
    """The gradient of mean_i v_i, v_i = log Σ_{j ∈ N_i} exp((s_ij − s⁺_i)/τ), with the value of NT-Xent.

    The paper writes mean_i exp(v_i − sg v_i), whose value is 1 whatever is learned. Difference to `simclr`: every
    anchor has the weight 1 in place of 1 − p_i. The gradient is that of DCL (decoupled contrastive learning).

    Args:
        config: see `FlatCLRConfig`.
        ranks, directions: see `StatelessViewLoss`.
    """

    name = "flatclr"
    config_class = FlatCLRConfig
    config: FlatCLRConfig

    def _log_weight(self, level: Tensor) -> Tensor:
        return torch.zeros_like(level)
