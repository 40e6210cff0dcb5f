"""Losses of the statistics of a global batch: every rank evaluates all of it, and keeps its part of the gradient.

Features are gathered once, without gradient, and become leaves of a small graph of their own. That takes less
traffic than sums over ranks: B × D numbers in place of a D × D matrix; D is 8192 in the paper and B a few hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from isogclr.distributed import Ranks
from isogclr.losses.pairs import gather_pairs
from isogclr.losses.views.stateless import Evaluation


@dataclass(frozen=True)
class Side:
    """The features of one input of all pairs of all ranks; padding takes part in nothing.

    Args:
        features: [B, D]; rows of padding are 0.
        present: 1 for a pair, 0 for padding, [B, 1].
        count: number of pairs.
    """

    features: Tensor
    present: Tensor
    count: Tensor

    def centred(self) -> Tensor:
        """Features minus their mean over the pairs, [B, D]; rows of padding stay 0."""
        return (self.features - self.features.sum(dim=0) / self.count) * self.present


def whole_batch(
    ranks: Ranks,
    first: Tensor,
    second: Tensor,
    rows: Tensor,
    value: Callable[[Side, Side], Tensor],
    differentiable: bool,
) -> Evaluation:
    """The value of the global batch, and W times the gradients of the own features."""
    pairs = gather_pairs(ranks, first, second, rows, mask_positives=False)
    present = (pairs.all_rows >= 0).to(pairs.all_features[0].dtype)[:, None]
    leaves = [features.detach().requires_grad_() for features in pairs.all_features]
    with torch.set_grad_enabled(differentiable):
        loss = value(*(Side(leaf * present, present, present.sum()) for leaf in leaves))
    if not differentiable:
        return Evaluation(loss, None, None)
    gradients = torch.autograd.grad(loss, leaves)
    return Evaluation(loss.detach(), *(gradient[pairs.own] * ranks.size for gradient in gradients))


def off_diagonal_squares(left: Tensor, right: Tensor) -> Tensor:
    """Σ_{k≠l} (leftᵀ right)_kl², from [B, D] each.

    Where D is large against B, from ‖LᵀR‖² = ⟨LLᵀ, RRᵀ⟩: two products of B × B in place of one of D × D. The matrix
    has a rank of at most B, so that its diagonal is a part of the whole only, and little cancels.
    """
    diagonal = (left * right).sum(dim=0)
    batch, dimension = left.shape
    if dimension >= 2 * batch:
        return ((left @ left.t()) * (right @ right.t())).sum() - diagonal.square().sum()
    return (left.t() @ right - torch.diag(diagonal)).square().sum()
