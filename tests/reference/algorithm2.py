"""Algorithm 2 of the paper (iSogCLR for bimodal SSL, appendix B) as plain float64 loops, to be read beside it.

Only loops and scalars: no broadcasting, no logarithm of s, no trick. Names are the paper's: s, u, tau, h, g, G.
Where `docs/method.md` lists a deviation, a comment here says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Anchor:
    """s_i, u_i, τ_i of one sample in one direction, and v_i for the Adam-style update."""

    tau: float
    s: float | None = None  # None: not visited yet
    u: float = 0.0
    v: float = 0.0
    visits: int = 0
    mean_h: float = 0.0  # under the weights of its last batch


@dataclass
class Result:
    loss: float
    image_gradient: np.ndarray
    text_gradient: np.ndarray
    objective: float = 0.0
    magnitude: float = 0.0  # Σ |w h| / B: what rounding of the loss is relative to


@dataclass
class Algorithm2:
    """β_0, β_1, η and ρ of the paper, and the options beyond it.

    `learn_tau=False` is SogCLR. State is kept by row, created when a row is first seen.
    """

    beta_0: float
    rho: float = 6.0
    eta: float = 0.03
    beta_1: float = 0.9
    beta_2: float = 0.001
    tau_init: float = 0.01
    tau_0: float = 0.005
    tau_max: float = 1.0
    limit: float = 5.0
    learn_tau: bool = True
    adam: bool = False
    log: bool = False
    carry: bool = False
    normalized: bool = False
    one_tau: bool = False
    typical: bool = False  # τ of a new sample: the geometric mean of the last batch, by direction
    starts: dict[str, float] = field(default_factory=dict)
    image: dict[int, Anchor] = field(default_factory=dict)
    text: dict[int, Anchor] = field(default_factory=dict)
    shared: Anchor | None = None

    def step(self, images: np.ndarray, texts: np.ndarray, rows: list[int]) -> Result:
        """Lines 4 to 11 for one batch: the gradient estimator G(w) in the features, and new s, u, τ."""
        batch = len(rows)
        result = Result(0.0, np.zeros_like(images), np.zeros_like(texts))
        updated_image: dict[int, Anchor] = {}
        updated_text: dict[int, Anchor] = {}
        gradients_of_tau: list[float] = []
        new_tau: dict[str, list[float]] = {"image": [], "text": []}
        for i in range(batch):
            negatives = [j for j in range(batch) if rows[j] != rows[i]]  # T_i^- holds no t_i, however often drawn
            if not negatives:
                continue
            positive = float(images[i] @ texts[i])

            # Image anchor: h_{x_i}(t_j) = E_I(x_i)·E_T(t_j) − E_I(x_i)·E_T(t_i)
            h = [float(images[i] @ texts[j]) - positive for j in negatives]
            anchor = self._anchor(self.image, rows[i], "image")
            new, weights, gradient_of_tau, log_s = self._lines_5_to_9(anchor, h)
            new_tau["image"].append(new.tau)
            updated_image.setdefault(rows[i], new)  # a row drawn twice: its first occurrence is stored
            gradients_of_tau.append(gradient_of_tau)
            for w, h_ij, j in zip(weights, h, negatives, strict=True):
                result.loss += w * h_ij / batch
                result.magnitude += abs(w * h_ij) / batch
                result.image_gradient[i] += w * (texts[j] - texts[i]) / batch
                result.text_gradient[j] += w * images[i] / batch
                result.text_gradient[i] -= w * images[i] / batch
            result.objective += anchor.tau * (log_s + self.rho) / batch

            # Text anchor: h_{t_i}(x_j) = E_I(x_j)·E_T(t_i) − E_I(x_i)·E_T(t_i)
            h = [float(images[j] @ texts[i]) - positive for j in negatives]
            anchor = self._anchor(self.text, rows[i], "text")
            new, weights, gradient_of_tau, log_s = self._lines_5_to_9(anchor, h)
            new_tau["text"].append(new.tau)
            updated_text.setdefault(rows[i], new)
            gradients_of_tau.append(gradient_of_tau)
            for w, h_ij, j in zip(weights, h, negatives, strict=True):
                result.loss += w * h_ij / batch
                result.magnitude += abs(w * h_ij) / batch
                result.text_gradient[i] += w * (images[j] - images[i]) / batch
                result.image_gradient[j] += w * texts[i] / batch
                result.image_gradient[i] -= w * texts[i] / batch
            result.objective += anchor.tau * (log_s + self.rho) / batch
        self.image.update(updated_image)
        self.text.update(updated_text)
        if self.typical and new_tau["image"]:
            for direction, values in new_tau.items():
                self.starts[direction] = math.prod(values) ** (1 / len(values))
        if self.one_tau and gradients_of_tau:
            old = self.shared.tau if self.shared is not None else self.tau_init
            self._update_shared(sum(gradients_of_tau) / len(gradients_of_tau))
            for anchor in (*updated_image.values(), *updated_text.values()):
                self._carry(anchor, old, self.shared.tau)
        return result

    def _anchor(self, table: dict[int, Anchor], row: int, direction: str) -> Anchor:
        known = table.get(row, Anchor(self.starts.get(direction, self.tau_init)))
        if self.one_tau and self.shared is not None:
            return Anchor(self.shared.tau, known.s, visits=known.visits)
        return known

    def _lines_5_to_9(self, anchor: Anchor, h: list[float]) -> tuple[Anchor, list[float], float, float]:
        tau, n = anchor.tau, len(h)
        # Line 5, eq. 11
        g = sum(math.exp(h_ij / tau) for h_ij in h) / n
        # Line 6, eq. 12. Deviation: the first visit takes s = g.
        s = g if anchor.s is None else (1 - self.beta_0) * anchor.s + self.beta_0 * g
        # Weights of eq. 14: (τ/s) ∇g = Σ_j w_j ∇h_j. Deviation: s after its update.
        weights = [math.exp(h_ij / tau) / (s * n) for h_ij in h]
        # Line 7, eq. 13 without 1/n: (τ/s) ∂g/∂τ = −(1/τ) Σ_j w_j h_j. Deviation: clipped.
        in_gradient = [math.exp(h_ij / tau) / (g * n) for h_ij in h] if self.normalized else weights
        slope = -sum(w * h_ij for w, h_ij in zip(in_gradient, h, strict=True)) / tau
        gradient = min(max(slope + math.log(s) + self.rho, -self.limit), self.limit)
        new = Anchor(tau, s, anchor.u, anchor.v, anchor.visits + 1)
        if self.learn_tau and not self.one_tau:
            self._lines_8_and_9(new, gradient)
        new.mean_h = sum(math.exp(h_ij / tau) * h_ij for h_ij in h) / (g * n)
        self._carry(new, tau, new.tau)
        return new, weights, gradient, math.log(s)

    def _lines_8_and_9(self, anchor: Anchor, gradient: float) -> None:
        anchor.u = (1 - self.beta_1) * anchor.u + self.beta_1 * gradient
        direction = anchor.u
        if self.adam:
            anchor.v = (1 - self.beta_2) * anchor.v + self.beta_2 * gradient**2
            u_hat = anchor.u / (1 - (1 - self.beta_1) ** anchor.visits)
            v_hat = anchor.v / (1 - (1 - self.beta_2) ** anchor.visits)
            direction = u_hat / (math.sqrt(v_hat) + 1e-8)
        if self.log:
            step = min(max(-self.eta * direction / (2 * self.rho), -1.0), 1.0)
            anchor.tau = min(max(anchor.tau * math.exp(step), self.tau_0), self.tau_max)
            return
        anchor.tau = min(max(anchor.tau - self.eta * direction, self.tau_0), self.tau_max)

    def _carry(self, anchor: Anchor, old: float, new: float) -> None:
        """d log g / d(1/τ) is the mean of h: s as it would be at the new temperature, to first order."""
        if self.carry:
            anchor.s *= math.exp(anchor.mean_h * (1 / new - 1 / old))

    def _update_shared(self, gradient: float) -> None:
        shared = self.shared or Anchor(self.tau_init)
        shared.visits += 1
        self._lines_8_and_9(shared, gradient)
        self.shared = shared
