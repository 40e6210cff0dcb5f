"""Algorithm 1 of the paper (iSogCLR for unimodal SSL) as plain float64 loops, to be read beside it.

Two views of each picture, z = (a ‖ b): views i and B + i are of picture i. Only loops and scalars, no logarithm of
s. One row of s, u and τ per picture; both of its views are anchors. Deviations as in `algorithm2.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from reference.algorithm2 import Algorithm2, Anchor


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
class Algorithm1(Algorithm2):
    """β_0, β_1, η and ρ of the paper, and the options beyond it; `learn_tau=False` is SogCLR.

    Lines 5 to 9 are those of algorithm 2, with the negatives of both anchors of a picture in one list: its g is the
    mean over its two anchors, each a mean over the 2(B − 1) views of other pictures.
    """

    @property
    def pictures(self) -> dict[int, Anchor]:
        """s_i, u_i and τ_i by row."""
        return self.image

    def step(self, first: np.ndarray, second: np.ndarray, rows: list[int]) -> tuple[float, np.ndarray]:
        """Lines 4 to 11 for one batch: Σ w h over the anchors, its gradient in (a ‖ b), and new s, u, τ."""
        batch = len(rows)
        views, row_of = np.concatenate([first, second]), [*rows, *rows]
        count = sum(row >= 0 for row in rows)
        in_gradient, value = np.zeros((2 * batch, 2 * batch)), 0.0
        updated: dict[int, Anchor] = {}
        gradients_of_tau, new_tau = [], []
        for i in range(batch):
            if not negatives(i, row_of):
                continue
            hardness = {}  # of each negative j of both anchors: h_x(z_j) = x·z_j − x·x', x' the other view of x
            for anchor, partner in ((i, batch + i), (batch + i, i)):
                for j in negatives(anchor, row_of):
                    hardness[anchor, j] = float(views[anchor] @ views[j]) - float(views[anchor] @ views[partner])
            old = self._anchor(self.pictures, rows[i], "image")
            new, weights, gradient, _ = self._lines_5_to_9(old, [*hardness.values()])
            for (anchor, j), w in zip(hardness, weights, strict=True):
                in_gradient[anchor, j] = w / count
                value += w * hardness[anchor, j] / count
            gradients_of_tau.append(gradient)
            new_tau.append(new.tau)
            updated.setdefault(rows[i], new)  # a picture drawn twice: its first occurrence is stored
        self.pictures.update(updated)
        if self.typical and new_tau:
            self.starts["image"] = math.prod(new_tau) ** (1 / len(new_tau))
        if self.one_tau and gradients_of_tau:
            before = self.shared.tau if self.shared is not None else self.tau_init
            self._update_shared(sum(gradients_of_tau) / len(gradients_of_tau))
            for picture in updated.values():
                self._carry(picture, before, self.shared.tau)
        return value, weighted_gradient(views, row_of, in_gradient)
