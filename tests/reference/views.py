"""Algorithm 1 of the paper (iSogCLR for unimodal SSL) as plain float64 loops, to be read beside it.

Two views of each picture, z = (a ‖ b): views i and B + i are of picture i. Only loops and scalars, no logarithm of
s. One row of s, u and τ per picture; both of its views are anchors. Deviations as in `algorithm2.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np


def other_view(i: int, views: int) -> int:
    """The view of the same picture."""
    return (i + views // 2) % views


def negatives(i: int, rows: list[int]) -> list[int]:
    """Views of other pictures; a row below 0 is padding, which is nobody's negative and has none."""
    return [] if rows[i] < 0 else [j for j in range(len(rows)) if rows[j] >= 0 and rows[j] != rows[i]]


def softmax_statistics(views: np.ndarray, rows: list[int], i: int, tau: float) -> tuple[float, float, float]:
    """max_j S_ij, Σ_j exp((S_ij − max)/τ_i) and Σ_j softmax_j(S_ij/τ_i) S_ij over the negatives of anchor i."""
    similarities = [float(views[i] @ views[j]) for j in negatives(i, rows)]
    maximum = max(similarities)
    exponentials = [math.exp((s - maximum) / tau) for s in similarities]
    mean = sum(e * s for e, s in zip(exponentials, similarities, strict=True)) / sum(exponentials)
    return maximum, sum(exponentials), mean


def weighted_gradient(views: np.ndarray, rows: list[int], weights: np.ndarray) -> np.ndarray:
    """∂/∂z of Σ_i Σ_{j ∈ N_i} w_ij (z_i·z_j − z_i·z_k), k the other view of i, with w held constant."""
    gradient = np.zeros_like(views)
    for i in range(len(rows)):
        k = other_view(i, len(rows))
        for j in negatives(i, rows):
            gradient[i] += weights[i, j] * (views[j] - views[k])
            gradient[j] += weights[i, j] * views[i]
            gradient[k] -= weights[i, j] * views[i]
    return gradient


@dataclass
class Picture:
    """s_i, u_i and τ_i of one picture."""

    tau: float
    s: float | None = None  # None: not visited yet
    u: float = 0.0


@dataclass
class Algorithm1:
    """β_0, β_1, η and ρ of the paper; `learn_tau=False` is SogCLR."""

    beta_0: float
    rho: float = 6.0
    eta: float = 0.03
    beta_1: float = 0.9
    tau_init: float = 0.01
    tau_0: float = 0.005
    tau_max: float = 1.0
    limit: float = 5.0
    learn_tau: bool = True
    pictures: dict[int, Picture] = field(default_factory=dict)

    def step(self, first: np.ndarray, second: np.ndarray, rows: list[int]) -> tuple[float, np.ndarray]:
        """Lines 4 to 11 for one batch: Σ w h over the anchors, its gradient in (a ‖ b), and new s, u, τ."""
        batch = len(rows)
        views, row_of = np.concatenate([first, second]), [*rows, *rows]
        pictures = sum(row >= 0 for row in rows)
        weights, value = np.zeros((2 * batch, 2 * batch)), 0.0
        updated: dict[int, Picture] = {}
        for i in range(batch):
            if not negatives(i, row_of):
                continue
            old = self.pictures.get(rows[i], Picture(self.tau_init))
            hardness = {}  # of each negative j of both anchors: h_x(z_j) = x·z_j − x·x', x' the other view of x
            for anchor, partner in ((i, batch + i), (batch + i, i)):
                for j in negatives(anchor, row_of):
                    hardness[anchor, j] = float(views[anchor] @ views[j]) - float(views[anchor] @ views[partner])
            # Line 5: g of a picture is the mean over its two anchors, each a mean over the 2(B − 1) other views
            g = sum(math.exp(h / old.tau) for h in hardness.values()) / len(hardness)
            # Line 6
            s = g if old.s is None else (1 - self.beta_0) * old.s + self.beta_0 * g
            slope = 0.0
            for (anchor, j), h in hardness.items():
                w = math.exp(h / old.tau) / (s * len(hardness))
                weights[anchor, j] = w / pictures
                value += w * h / pictures
                slope -= w * h / old.tau
            # Lines 7 to 9
            gradient = min(max(slope + math.log(s) + self.rho, -self.limit), self.limit)
            new = Picture(old.tau, s, old.u)
            if self.learn_tau:
                new.u = (1 - self.beta_1) * old.u + self.beta_1 * gradient
                new.tau = min(max(old.tau - self.eta * new.u, self.tau_0), self.tau_max)
            updated.setdefault(rows[i], new)  # a picture drawn twice: its first occurrence is stored
        self.pictures.update(updated)
        return value, weighted_gradient(views, row_of, weights)
