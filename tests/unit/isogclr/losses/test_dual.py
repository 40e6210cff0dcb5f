"""With fixed features and the whole set as the batch, each τ_i converges to the solution of eq. 7."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from isogclr.config import ISogCLRConfig
from isogclr.losses import ISogCLRLoss
from reference.dual import optimal_temperatures
from support.unit_pairs import unit_pairs, visited

BATCH = 32
IMAGES, TEXTS = unit_pairs(BATCH, 16, agreement=0.6, seed=4)
BELOW, ABOVE = 1.2, math.log(BATCH - 1) + 1.0


def learn(
    config: ISogCLRConfig, steps: int, record_from: int | None = None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Temperatures after the given steps, and those of the last ones, [steps, 2B]."""
    loss = ISogCLRLoss(config)
    state = loss.initial_state(BATCH, dtype=torch.float64)
    rows, history = torch.arange(BATCH), []
    with torch.no_grad():
        for step in range(steps):
            state = loss(IMAGES, TEXTS, rows=rows, state=state).state
            if record_from is not None and step >= record_from:
                history.append(torch.cat([state.columns["image_temperature"], state.columns["text_temperature"]]))
    found = {d: state.columns[f"{d}_temperature"].numpy() for d in ("image", "text")}
    return found, torch.stack(history).numpy() if history else np.empty(0)


# With memory, η must stay below the bound of docs/method.md, which falls with τ³: with ρ above log(B−1) all optima
# lie at the lower bound, so that case starts near it with a tiny η.
STABLE = {
    "gamma_1": {"gamma": 1.0, "temperature_rate": 1e-3},
    "small_rate": {"gamma": 0.8, "temperature_rate": 3e-4},
    "normalized": {"gamma": 0.8, "temperature_rate": 1e-3, "normalized_weights": True},
    "adam": {"temperature_rate": 1e-4, "temperature_optimizer": "adam", "second_moment_weight": 0.02},
    "log": {"gamma": 0.8, "temperature_optimizer": "log", "normalized_weights": True, "carry_mean": True},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::isogclr.losses.isogclr.RhoWarning")
@pytest.mark.parametrize("option", STABLE)
@pytest.mark.parametrize("rho", [BELOW, ABOVE])
def test_temperatures_converge_to_the_dual_solution(option: str, rho: float) -> None:
    options = {"temperature_init": 0.1} | STABLE[option]
    if rho == ABOVE and option == "small_rate":
        options |= {"temperature_init": 0.006, "temperature_rate": 4e-7}
    if rho == ABOVE and option == "adam":
        options |= {"gamma": 1.0}  # with memory, steps of 1e-4 do not settle at 0.005
    config = ISogCLRConfig.preset("paper", rho=rho, **options)
    found, _ = learn(config, steps=3000)
    expected = optimal_temperatures(
        IMAGES.numpy(), TEXTS.numpy(), rho, config.temperature_min, config.temperature_max
    )
    for direction, values in zip(("image", "text"), expected, strict=True):
        np.testing.assert_allclose(found[direction], values, rtol=0.01)
    if rho == ABOVE:
        assert (expected[0] == config.temperature_min).all()
    else:
        inside = (expected[0] > config.temperature_min) & (expected[0] < config.temperature_max)
        assert inside.all()
        assert expected[0].max() > 1.5 * expected[0].min()


def stability_bound(row: np.ndarray, positive: float, tau: float, gamma: float) -> float:
    """Largest stable η of one anchor, `docs/method.md`."""
    h = row - positive
    p = np.exp((h - h.max()) / tau)
    p /= p.sum()
    mean = float(p @ h)
    a, v = mean / tau, float(p @ (h - mean) ** 2) / tau**2
    return 2 * (2 - gamma) * tau / ((2 - gamma) * v + 2 * (1 - gamma) * a * (1 + a))


@pytest.mark.parametrize("gamma", [0.2, 0.5, 0.8])
def test_the_bound_of_a_stable_step(gamma: float) -> None:
    """From 0.1 % beside its optimum, an anchor settles with 0.8 times the bound and leaves with 1.25 times."""
    rho, anchor = 0.6 * math.log(BATCH - 1), 3
    best = optimal_temperatures(IMAGES.numpy(), TEXTS.numpy(), rho, 1e-4, 10.0)[0][anchor]
    similarity = (IMAGES[anchor] @ TEXTS.T).numpy()
    row = np.delete(similarity, anchor)
    bound = stability_bound(row, similarity[anchor], best, gamma)
    distance = {}
    for factor in (0.8, 1.25):
        config = ISogCLRConfig.preset(
            "paper",
            rho=rho,
            gamma=gamma,
            momentum_weight=1.0,
            temperature_rate=factor * bound,
            temperature_min=1e-4,
            temperature_max=10.0,
        )
        loss = ISogCLRLoss(config)
        state = visited(loss, BATCH, temperature=best * 1.001)
        log_g = np.log(np.mean(np.exp((row - similarity[anchor]) / best)))
        state.columns["image_log_mean"].fill_(log_g)
        with torch.no_grad():
            for _ in range(300):
                state = loss(IMAGES, TEXTS, rows=torch.arange(BATCH), state=state).state
        distance[factor] = abs(float(state.columns["image_temperature"][anchor]) / best - 1)
    assert distance[0.8] < 1e-4
    assert distance[1.25] > 0.01


def test_the_recipe_s_step_swings() -> None:
    """η = 0.03, γ = 0.8 and small optima: not stable, as `docs/method.md` says. If this fails, it must change."""
    rho = 0.8 * math.log(BATCH - 1)
    optima = optimal_temperatures(IMAGES.numpy(), TEXTS.numpy(), rho, 0.005, 1.0)[0]
    assert np.median(optima) < 0.05
    _, history = learn(ISogCLRConfig.preset("paper", rho=rho), steps=400, record_from=300)
    history = history[:, :BATCH]
    assert np.median(history.max(axis=0) / history.min(axis=0)) > 1.5
    assert np.median(history.mean(axis=0) / optima) > 2  # and not around the optimum
    config = ISogCLRConfig.preset(
        "paper", rho=rho, normalized_weights=True, temperature_rate=1e-4, temperature_init=0.05
    )
    _, history = learn(config, steps=1500, record_from=1400)
    assert np.median(history.max(axis=0) / history.min(axis=0)) < 1.01
    np.testing.assert_allclose(np.median(history[-1, :BATCH] / optima), 1, rtol=0.01)
