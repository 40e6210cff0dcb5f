"""The objective, one pure function an equation. No state, no device choice, no logging, no collectives.

Symbols (the whole table, with the names of other implementations, is in `docs/method.md`):

    S [A, B]   similarities of A anchors with B candidates of the other modality, unit features
    h [A, B]   hardness of a candidate: its similarity minus that of the anchor's own partner
    τ [A]      temperature of an anchor           γ   weight of the new estimate (the paper's β_0)
    g [A]      batch estimate of E exp(h/τ)        s   its moving average over visits
    w [A, B]   weights of the negatives            G   gradient of the objective in τ
    u [A]      momentum of G                       ρ   the radius of the KL ball

Image anchors take S = I Tᵀ, text anchors its transpose; nothing else differs between the directions.
g and s live as logarithms, so h/τ of ±400 stays finite in fp32 without a running maximum or an ε.

The losses evaluate `log_batch_mean` and `weights` in tiles of bounded size (`kernel.py`); here they stand as the
definitions that the tiles are tested against, and for anybody who wants the weights of a few anchors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

ADAM_EPSILON = 1e-8


def hardness(similarity: Tensor, positive: Tensor) -> Tensor:
    """h_ij = S_ij − S_ii (eq. 3 of the paper, appendix B for two modalities).

    Shapes: `similarity` [A, B], `positive` [A] (the S_ii) → [A, B].
    """
    return similarity - positive[:, None]


def log_batch_mean(h: Tensor, temperature: Tensor, negative: Tensor) -> Tensor:
    """log g_i = logsumexp_{j ∈ N_i}(h_ij / τ_i) − log |N_i| (eq. 11, appendix B).

    N_i are the candidates that are not the anchor's own sample: `negative` [A, B] is True there. −inf without any.
    """
    exponent = (h / temperature[:, None]).masked_fill(~negative, -math.inf)
    return torch.logsumexp(exponent, dim=1) - negative.sum(dim=1).to(h.dtype).log()


def mean_of_views(log_batch: Tensor, mean_hardness: Tensor) -> tuple[Tensor, Tensor]:
    """log g of a picture, g being the mean over its views as anchors (algorithm 1), and E_p[h] over both of them.

    Both are anchors of the same τ and s, so that their negatives count as one set. Shapes: [2, A] → [A] each.
    """
    mean = torch.logsumexp(log_batch, dim=0) - math.log(log_batch.shape[0])
    return mean, (torch.softmax(log_batch, dim=0) * mean_hardness).sum(dim=0)


def moving_average(log_mean: Tensor, log_batch: Tensor, gamma: float, first_visit: Tensor) -> Tensor:
    """log s ← logaddexp(log(1−γ) + log s, log γ + log g) (eq. 12).

    Deviation: the first visit takes s = g. The paper leaves s¹ open; zero would make the first s equal γ·g and the
    first gradient 1/γ too large.
    """
    if gamma == 1.0:
        return log_batch
    average = torch.logaddexp(math.log1p(-gamma) + log_mean, math.log(gamma) + log_batch)
    return torch.where(first_visit, log_batch, average)


def weights(h: Tensor, temperature: Tensor, log_mean: Tensor, negative: Tensor) -> Tensor:
    """w_ij = exp(h_ij / τ_i) / (s_i |N_i|), 0 outside N_i: what multiplies ∇h_ij in eq. 14.

    With s at its batch value g the weights of an anchor sum to 1 and are the paper's p*. Shapes: [A, B].
    """
    log_count = negative.sum(dim=1).to(h.dtype).log()
    exponent = h / temperature[:, None] - (log_mean + log_count)[:, None]
    return torch.exp(exponent.masked_fill(~negative, -math.inf))


def surrogate(w: Tensor, h: Tensor) -> Tensor:
    """Σ_j w_ij h_ij with w held constant: its gradient in the features is the anchor's term of eq. 14.

    (τ_i/s_i) ∇g_i = (τ_i/s_i) mean_j exp(h_ij/τ_i) ∇h_ij/τ_i: the factor τ_i cancels against the 1/τ_i, so no τ
    stands before the sum. It is no loss curve; `robust_objective` is. Shapes: [A, B] → [A].
    """
    return (w.detach() * h).sum(dim=1)


def temperature_gradient(
    weighted_hardness: Tensor, temperature: Tensor, log_mean: Tensor, rho: float, limit: float
) -> Tensor:
    """G(τ_i) = −(1/τ_i) Σ_j w_ij h_ij + log s_i + ρ, clipped to ±limit (eq. 13 times n). Shapes: [A].

    Deviations: the 1/n of eq. 13 is part of the step size; |G| is clipped as in the authors' code, because one
    sample with a stale s would otherwise throw its τ across the whole range.
    """
    gradient = log_mean + rho - weighted_hardness / temperature
    return gradient.clamp(-limit, limit)


def momentum(previous: Tensor, gradient: Tensor, weight: float) -> Tensor:
    """u ← (1−β) u + β G (step 8 of algorithm 2); with G² in place of G, the second moment of Adam. Shapes: [A]."""
    return (1.0 - weight) * previous + weight * gradient


def adam_direction(
    first: Tensor, second: Tensor, visits: Tensor, first_weight: float, second_weight: float
) -> Tensor:
    """Bias-corrected û / (√v̂ + ε); `visits` counts the updates of each sample, this one included. Shapes: [A].

    The correction must count per sample: with the step or the epoch of the run, a sample that is seen late would
    be taken for one whose averages have long settled.
    """
    count = visits.to(first.dtype)
    unbiased_first = first / -torch.expm1(count * _log_decay(first_weight))
    unbiased_second = second / -torch.expm1(count * _log_decay(second_weight))
    return unbiased_first / (unbiased_second.sqrt() + ADAM_EPSILON)


def projected_step(temperature: Tensor, direction: Tensor, rate: float, lower: float, upper: float) -> Tensor:
    """τ ← clip(τ − η u, τ_0, τ_max) (step 9 of algorithm 2). Shapes: [A]."""
    return (temperature - rate * direction).clamp(lower, upper)


def relative_step(
    temperature: Tensor, direction: Tensor, rate: float, rho: float, lower: float, upper: float
) -> Tensor:
    """τ ← clip(τ exp(−η u / 2ρ), τ_0, τ_max): step 9 in log τ, at most a factor e. Shapes: [A].

    Not in the paper. Where hardness is normally distributed, KL(p*‖uniform) = σ²/2τ², the optimum is σ/√(2ρ), and
    G has the slope 2ρ in log τ there: η = 1 is a Newton step, whatever the scale of τ.
    """
    exponent = (-rate / (2.0 * rho) * direction).clamp(-1.0, 1.0)
    return (temperature * torch.exp(exponent)).clamp(lower, upper)


def carried_over(log_mean: Tensor, mean_hardness: Tensor, temperature: Tensor, new_temperature: Tensor) -> Tensor:
    """log s at a new temperature: log s + E_p[h] (1/τ' − 1/τ), the tangent of log g in 1/τ. Shapes: [A].

    Not in the paper. s is a mean of exp(h/τ); when τ moves, an s that stays behind belongs to another temperature.
    log g is convex in 1/τ, so the tangent never overestimates.
    """
    return log_mean + mean_hardness * (new_temperature.reciprocal() - temperature.reciprocal())


def log_sum_of_temperatures(temperatures: tuple[Tensor, ...], where: Tensor) -> Tensor:
    """[Σ log τ of each direction …, count] over the chosen anchors: what a geometric mean over ranks is made of."""
    chosen = [torch.where(where, temperature.log(), 0.0).sum() for temperature in temperatures]
    return torch.stack([*chosen, where.sum().to(chosen[0].dtype)])


def robust_objective(temperature: Tensor, log_mean: Tensor, rho: float) -> Tensor:
    """τ_i (log s_i + ρ): the sample's share of the robust global objective F_B, one direction. Shapes: [A]."""
    return temperature * (log_mean + rho)


def first_occurrence(rows: Tensor) -> Tensor:
    """True where a row stands for the first time, in order of position; rows below 0 never. Shapes: [A] → [A]."""
    ordered, order = torch.sort(rows, stable=True)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return torch.empty_like(new).scatter_(0, order, new & (ordered >= 0))


def number_of_negatives(rows: Tensor, candidates: Tensor) -> Tensor:
    """|N_i|: candidates of another row; a candidate row below 0 is padding and counts for nobody.

    Shapes: `rows` [A], `candidates` [B] → [A], int64; 0 for an anchor that is padding itself.
    """
    ordered = torch.sort(candidates).values
    same = torch.searchsorted(ordered, rows, right=True) - torch.searchsorted(ordered, rows)
    others = (candidates >= 0).sum() - same
    return torch.where(rows >= 0, others, torch.zeros_like(others))


def _log_decay(weight: float) -> float:
    return math.log1p(-weight) if weight < 1.0 else -math.inf
