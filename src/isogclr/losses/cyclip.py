"""CyCLIP: CLIP with consistency of the two embeddings (Goel et al. 2022)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from isogclr.config import CyCLIPConfig, check_kind
from isogclr.distributed import Ranks
from isogclr.losses import kernel
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState, keep_in_graph
from isogclr.losses.inputs import check_features, check_logit_scale
from isogclr.losses.kernel import Exponent, Kept, Pairs, Statistics
from isogclr.losses.pairs import gather_pairs, pair_share


class CyCLIPLoss(ContrastiveLoss):
    """CLIP + λ_in Σ_jk (⟨I_j,I_k⟩ − ⟨T_j,T_k⟩)²/B + λ_cross Σ_jk (⟨I_j,T_k⟩ − ⟨I_k,T_j⟩)²/B.

    Difference to `clip`: the two terms; and, like iSogCLR, it computes in fp32 and gives the exact gradient of the
    global batch with any number of ranks.

    Args:
        config: see `CyCLIPConfig`.
        ranks: the processes that share a batch; None takes those of the default group at the first call.
    """

    name = "cyclip"
    config_class = CyCLIPConfig
    config: CyCLIPConfig

    def __init__(self, config: CyCLIPConfig | None = None, ranks: Ranks | None = None) -> None:
        super().__init__()
        self.config = CyCLIPConfig() if config is None else config
        check_kind(self.config, CyCLIPConfig)
        self.ranks = ranks

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        logit_scale: Tensor | None = None,
        logit_bias: Tensor | None = None,
        rows: Tensor | None = None,
        state: SampleState | None = None,
        shared: SampleState | None = None,
        step: float = 0,
    ) -> LossOutput:
        """See `ContrastiveLoss.forward`; samples and steps change nothing."""
        check_features(first, second, self.directions, values=self.config.validate)
        logit_scale = check_logit_scale(self.name, logit_scale, values=self.config.validate)
        if self.ranks is None:
            self.ranks = Ranks()
        tensors = [first, second, logit_scale]
        differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        with torch.no_grad(), kernel.exact_products(first.device.type):
            # CyCLIP knows no samples: the rows only tell pairs (0) from padding.
            present = torch.zeros(first.shape[0], dtype=torch.int64, device=first.device)
            pairs = gather_pairs(self.ranks, first, second, present, mask_positives=False)
            terms = [
                _contrast(pairs, logit_scale, self.ranks, self.config.tile_rows, differentiable),
                _consistency(pairs, self.ranks, self.config),
            ]
            value = terms[0].value + terms[1].value
        if differentiable:
            gradients = [terms[0].first + terms[1].first, terms[0].second + terms[1].second]
            gradients = [gradient[: first.shape[0]] for gradient in gradients]
            value = kernel.attach_gradients(value, tensors, [*gradients, terms[0].scale])
        return LossOutput(keep_in_graph(value, logit_bias))


class _Term(NamedTuple):
    """A value on this rank and W times its gradients (DDP averages over the ranks)."""

    value: Tensor
    first: Tensor
    second: Tensor
    scale: Tensor


def _contrast(
    pairs: Pairs, logit_scale: Tensor, ranks: Ranks, tile_rows: int | None, differentiable: bool
) -> _Term:
    """CLIP: ½ mean_i [−log softmax_j(σ S_ij)_i] of both directions; every candidate counts, the partner too."""
    present = pairs.own_rows >= 0
    own_first, own_second = pairs.own_features
    scale = logit_scale.to(own_first.dtype).reshape(())
    each = scale.expand(present.shape[0])
    found, kept = kernel.statistics(pairs, (each, each), tile_rows)
    first, second = found
    positive = (own_first * own_second).sum(dim=1)
    share = pair_share(pairs, ranks)

    def total(values: Tensor) -> Tensor:
        return torch.where(present, values, 0.0).sum() * share / 2

    value = total(_cross_entropy(first, positive, scale) + _cross_entropy(second, positive, scale))
    by_scale = total(first.mean + second.mean - 2 * positive).reshape(logit_scale.shape)
    if not differentiable:
        return _Term(value, positive, positive, by_scale)
    gradients = _contrast_gradients(pairs, found, scale, ranks, kept, tile_rows)
    factor = scale * share / 2
    return _Term(value, gradients[0].mul_(factor), gradients[1].mul_(factor), by_scale)


def _cross_entropy(found: Statistics, positive: Tensor, scale: Tensor) -> Tensor:
    return (found.maximum - positive) * scale + found.log_sum


def _contrast_gradients(
    pairs: Pairs, found: list[Statistics], scale: Tensor, ranks: Ranks, kept: Kept, tile_rows: int | None
) -> list[Tensor]:
    """Σ_j (p^img_ij + p^txt_ji) T_j − 2 T_i and its counterpart; p = exp((S − level) σ) is the softmax."""
    present = pairs.own_rows >= 0
    levels = torch.stack([one.maximum + one.log_sum / scale for one in found], dim=1)  # [b, 2]
    levels = torch.where(present[:, None], levels, -kernel.EXCLUDED)
    everyone = ranks.gather(levels)
    scales = scale.expand(everyone.shape[0])
    one = present.to(scale.dtype)
    return kernel.gradients(
        pairs,
        everyone=[Exponent(scales, level) for level in everyone.unbind(dim=1)],
        positive_weight=(one, one),
        kept=kept,
        tile_rows=tile_rows,
    )


def _consistency(pairs: Pairs, ranks: Ranks, config: CyCLIPConfig) -> _Term:
    """Both consistency terms from D × D products alone.

    With P = I + T and Q = I − T:  IIᵀ − TTᵀ = ½(PQᵀ + QPᵀ)  and  ITᵀ − TIᵀ = ½(QPᵀ − PQᵀ), so that

        in-modal = (a + c)/2,   cross-modal = (a − c)/2,   a = ‖PQᵀ‖² = ⟨PᵀP, QᵀQ⟩,   c = tr(PQᵀPQᵀ) = ⟨K, Kᵀ⟩

    with K = QᵀP. No B × B tensor, and nothing cancels when image and text agree: Q itself becomes small.
    Every rank has all pairs, so the value is the global one on each.
    """
    total, difference = _sum_and_difference(pairs.all_features)  # P, Q [B, D]
    own_total, own_difference = _sum_and_difference(pairs.own_features)
    gram_total, gram_difference = total.t() @ total, difference.t() @ difference
    mixed = difference.t() @ total  # K [D, D]
    even = (config.in_modal_weight + config.cross_modal_weight) / 2
    odd = (config.in_modal_weight - config.cross_modal_weight) / 2
    share = pair_share(pairs, ranks)
    value = even * (gram_total * gram_difference).sum() + odd * (mixed * mixed.t()).sum()
    by_total = 2 * even * own_total @ gram_difference  # ∂/∂P [b, D]
    by_difference = 2 * even * own_difference @ gram_total  # ∂/∂Q [b, D]
    if odd:
        by_total += 2 * odd * own_difference @ mixed.t()
        by_difference += 2 * odd * own_total @ mixed
    return _Term(
        value * share / ranks.size,
        (by_total + by_difference).mul_(share),
        (by_total - by_difference).mul_(share),
        value.new_zeros(()),
    )


def _sum_and_difference(features: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    first, second = features
    return first + second, first - second
