"""The one-dimensional dual problem of eq. 7, solved by scipy: what a temperature should converge to."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar


def dual_objective(tau: float, h: np.ndarray, rho: float) -> float:
    """τ log mean_j exp(h_j/τ) + τρ; the constant −τ_0 ρ is left out."""
    exponent = h / tau
    peak = exponent.max()
    return tau * (peak + np.log(np.mean(np.exp(exponent - peak))) + rho)


def optimal_temperature(h: np.ndarray, rho: float, lower: float, upper: float) -> float:
    """argmin over [lower, upper]; the objective is convex in τ."""
    found = minimize_scalar(
        lambda log_tau: dual_objective(np.exp(log_tau), h, rho),
        bounds=(np.log(lower), np.log(upper)),
        method="bounded",
        options={"xatol": 1e-10},
    )
    candidates = [lower, upper, float(np.exp(found.x))]
    return min(candidates, key=lambda tau: dual_objective(tau, h, rho))


def optimal_temperatures(
    images: np.ndarray, texts: np.ndarray, rho: float, lower: float, upper: float
) -> tuple[np.ndarray, np.ndarray]:
    """Of all image anchors and of all text anchors, when the negatives are all other pairs."""
    similarity = images @ texts.T
    result = []
    for matrix in (similarity, similarity.T):
        anchors = range(len(matrix))
        result.append(
            [optimal_temperature(np.delete(matrix[i], i) - matrix[i, i], rho, lower, upper) for i in anchors]
        )
    return np.array(result[0]), np.array(result[1])
