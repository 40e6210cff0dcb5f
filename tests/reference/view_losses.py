"""The losses of two views that keep no state, as plain float64 loops to be read beside their papers.

One function per loss, from the views a (first) and b (second) of each picture; gradients by autograd. `rows` name
the pictures: a view of the same picture is no negative. With distinct rows, `others` are simply all but i.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def others(i: int, rows: list[int]) -> list[int]:
    """Positions of other pictures."""
    return [j for j in range(len(rows)) if rows[j] != rows[i]]


def anchors(a: Tensor, b: Tensor, rows: list[int]) -> list[tuple[Tensor, Tensor, list[Tensor]]]:
    """(anchor, partner, negatives) of both views of each picture; negatives are both views of all others."""
    found = []
    for i in range(len(rows)):
        negatives = [view[j] for j in others(i, rows) for view in (a, b)]
        found += [(a[i], b[i], negatives), (b[i], a[i], negatives)]
    return found


def simclr(a: Tensor, b: Tensor, rows: list[int], tau: float = 0.1) -> Tensor:
    """NT-Xent over 2B anchors, the positive in the denominator."""
    terms = []
    for z, partner, negatives in anchors(a, b, rows):
        positive = torch.exp(z @ partner / tau)
        terms.append(-torch.log(positive / (positive + sum(torch.exp(z @ n / tau) for n in negatives))))
    return sum(terms) / len(terms)


def flatclr_gradient(a: Tensor, b: Tensor, rows: list[int], tau: float = 0.1) -> Tensor:
    """mean v_i, v_i = logsumexp over the negatives of (s_ij − s⁺_i)/τ: its gradient is FlatNCE's."""
    found = anchors(a, b, rows)
    terms = [
        torch.log(sum(torch.exp((z @ n - z @ partner) / tau) for n in negatives))
        for z, partner, negatives in found
        if negatives
    ]
    return sum(terms) / len(found)


def flatnce(a: Tensor, b: Tensor, rows: list[int], tau: float = 0.1) -> Tensor:
    """exp(v_i − sg v_i), as the paper writes it: of value 1."""
    terms = []
    for z, partner, negatives in anchors(a, b, rows):
        v = torch.logsumexp(torch.stack([(z @ n - z @ partner) / tau for n in negatives]), dim=0)
        terms.append(torch.exp(v - v.detach()))
    return sum(terms) / len(terms)


def tau_simclr(a: Tensor, b: Tensor, rows: list[int], t: float = 0.1) -> Tensor:
    """NT-Xent with κ_i = sigmoid(e_i)/t in place of 1/τ; e is the last entry of a view."""
    terms = []
    for z, partner, negatives in anchors(a, b, rows):
        kappa = torch.sigmoid(z[-1]) / t
        positive = torch.exp(kappa * (z[:-1] @ partner[:-1]))
        denominator = positive + sum(torch.exp(kappa * (z[:-1] @ n[:-1])) for n in negatives)
        terms.append(-torch.log(positive / denominator))
    return sum(terms) / len(terms)


def simco(a: Tensor, b: Tensor, rows: list[int], tau_alpha: float = 0.1, tau_beta: float = 1.0) -> Tensor:
    """sg[(1 − p^β_0)/(1 − p^α_0)] (−log p^α_0), candidates from the other view, both directions averaged."""
    terms = []
    for own, other in ((a, b), (b, a)):
        for i in range(len(rows)):
            if not others(i, rows):
                terms.append(own.new_zeros(()))  # nothing to tell apart
                continue
            logits = torch.stack([own[i] @ other[i], *(own[i] @ other[j] for j in others(i, rows))])
            p_alpha, p_beta = torch.softmax(logits / tau_alpha, 0)[0], torch.softmax(logits / tau_beta, 0)[0]
            weight = ((1 - p_beta) / (1 - p_alpha)).detach()
            terms.append(weight * -torch.log(p_alpha))
    return sum(terms) / len(terms)


def spectral(a: Tensor, b: Tensor, rows: list[int], mu: float = 1.0) -> Tensor:
    """(1/μ) [−2 mean_i z¹_i·z²_i + mean over i ≠ j of (z¹_i·z²_j)²], features cut to norm √μ."""

    def cut(z: Tensor) -> Tensor:
        return z if z.norm() <= math.sqrt(mu) else z / z.norm() * math.sqrt(mu)

    n = len(rows)
    positives = [cut(a[i]) @ cut(b[i]) for i in range(n)]
    squares = [(cut(a[i]) @ cut(b[j])) ** 2 for i in range(n) for j in others(i, rows)]
    return (-2 * sum(positives) / len(positives) + sum(squares) / max(len(squares), 1)) / mu


def barlow_twins(a: Tensor, b: Tensor, rows: list[int], weight: float = 0.0051) -> Tensor:
    """Σ_k (1 − C_kk)² + λ Σ_{k≠l} C_kl²; C_kl the correlation of feature k of view 1 with feature l of view 2."""
    n, dimension = a.shape

    def standardized(z: Tensor, k: int) -> list[Tensor]:
        values = [z[i, k] for i in range(n)]
        mean = sum(values) / n
        variance = sum((v - mean) ** 2 for v in values) / n
        return [(v - mean) / torch.sqrt(variance + 1e-5) for v in values]

    one, other = ([standardized(z, k) for k in range(dimension)] for z in (a, b))
    total = a.new_zeros(())
    for k in range(dimension):
        for l in range(dimension):  # noqa: E741 (the paper's)
            c = sum(x * y for x, y in zip(one[k], other[l], strict=True)) / n
            total = total + ((1 - c) ** 2 if k == l else weight * c**2)
    return total


def vicreg(
    a: Tensor,
    b: Tensor,
    rows: list[int],
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
) -> Tensor:
    """λ s(Z, Z') + μ ½[v(Z) + v(Z')] + ν [c(Z) + c(Z')]."""
    n, dimension = a.shape
    total = invariance * sum((a[i] - b[i]) @ (a[i] - b[i]) for i in range(n)) / (n * dimension)
    for z in (a, b):
        mean = sum(z[i] for i in range(n)) / n
        for k in range(dimension):
            for l in range(dimension):  # noqa: E741
                c = sum((z[i, k] - mean[k]) * (z[i, l] - mean[l]) for i in range(n)) / (n - 1)
                if k == l:
                    hinge = torch.clamp(1 - torch.sqrt(c + 1e-4), min=0)
                    total = total + variance / 2 * hinge / dimension
                else:
                    total = total + covariance * c**2 / dimension
    return total
