"""What SimCLR, FlatCLR, SimCo and TaU share: one softmax over the negatives of each anchor.

With the inverse temperature κ_i of an anchor, s⁺_i the similarity with its partner and N_i its negatives, let

    v_i = log Σ_{j ∈ N_i} exp(κ_i (S_ij − s⁺_i))

NT-Xent of an anchor is −log p_i = softplus(v_i), and 1 − p_i = sigmoid(v_i), with p_i the softmax of the partner
among partner and negatives. So the gradients of all four are those of Σ_i a_i v_i, with a weight that is held
constant,

    SimCLR, TaU: sigmoid(v_i)     FlatCLR: 1     SimCo: sigmoid(v_i) at another temperature

and a_i ∇v_i comes from the tiled kernel, whose weights are w_ij = a_i κ_i exp(κ_i (S_ij − s⁺_i) − v_i).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from isogclr.distributed import Ranks
from isogclr.losses import kernel
from isogclr.losses.kernel import Exponent, Kept, Pairs
from isogclr.losses.pairs import number_of_negatives, pair_share


@dataclass(frozen=True)
class Contrast:
    """The own anchors of each direction among all candidates. Shapes: [b], padding included."""

    pairs: Pairs
    inverse_temperature: Sequence[Tensor]  # κ_i
    positive: Tensor  # s⁺_i
    active: Tensor  # has negatives: the others contribute nothing
    level: list[Tensor]  # v_i
    mean_hardness: list[Tensor]  # Σ_j softmax_j(κ_i S_ij) S_ij − s⁺_i, which is ∂v_i/∂κ_i
    share: Tensor | float  # W / B
    kept: Kept
    tile_rows: int | None

    def mean(self, values: Sequence[Tensor]) -> Tensor:
        """Over all directions and active anchors, as this rank's share: the mean over ranks is the global one."""
        total = reduce(torch.add, values)
        return torch.where(self.active, total, 0.0).sum() * (self.share / len(values))


def contrast(pairs: Pairs, inverse_temperature: Sequence[Tensor], ranks: Ranks, tile_rows: int | None) -> Contrast:
    """First pass over the similarities."""
    found, kept = kernel.statistics(pairs, inverse_temperature, tile_rows)
    positive = pairs.positives()[pairs.own]
    return Contrast(
        pairs=pairs,
        inverse_temperature=inverse_temperature,
        positive=positive,
        active=number_of_negatives(pairs)[pairs.own] > 0,
        level=[
            (one.maximum - positive) * inverse + one.log_sum
            for one, inverse in zip(found, inverse_temperature, strict=True)
        ],
        mean_hardness=[one.mean - positive for one in found],
        share=pair_share(pairs, ranks),
        kept=kept,
        tile_rows=tile_rows,
    )


def contrast_gradients(found: Contrast, log_weight: Sequence[Tensor], ranks: Ranks) -> list[Tensor]:
    """Second pass: W times the feature gradients of the mean of a_i v_i over all anchors, [b, D] per direction.

    Args:
        log_weight: log a_i of the own anchors, [b] for each direction.
    """
    exponents, weights = [], []
    for inverse, level, log_a in zip(found.inverse_temperature, found.level, log_weight, strict=True):
        # w_ij = exp((S_ij − c_i) κ_i); out of reach, so that w = 0, without negatives.
        reach = found.positive + (level - log_a - inverse.log()) / inverse
        exponents += [inverse, torch.where(found.active, reach, -kernel.EXCLUDED)]
        weights.append(torch.where(found.active, inverse * log_a.exp(), 0.0))
    everyone = ranks.gather(torch.stack(exponents, dim=1)).unbind(dim=1)  # κ and c of each direction, [B] each
    gradients = kernel.gradients(
        found.pairs,
        everyone=[Exponent(*everyone[2 * number : 2 * number + 2]) for number in range(len(weights))],
        positive_weight=weights,
        kept=found.kept,
        tile_rows=found.tile_rows,
    )
    return [gradient.mul_(found.share / len(weights)) for gradient in gradients]
