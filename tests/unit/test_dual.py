"""With fixed features and the whole set as the batch, each τ_i converges to the solution of eq. 7."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from isogclr.config import ISogCLRConfig
from isogclr.losses import ISogCLRLoss
from reference.dual import optimal_temperatures
from unit.pairs import unit_pairs

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


# With memory, η must stay below γ/(1−γ)·τ³/h². Here |h| is up to 1: that is 6e-4 at the smallest optimum below
# log(B−1), 0.055, and 5e-7 at the lower bound, where all optima above it lie.
STABLE = {
    "gamma_1": {"gamma": 1.0, "temperature_rate": 1e-3},
    "small_rate": {"gamma": 0.8, "temperature_rate": 3e-4},
    "normalized": {"gamma": 0.8, "temperature_rate": 1e-3, "normalized_weights": True},
    "adam": {"gamma": 1.0, "temperature_rate": 1e-4, "temperature_optimizer": "adam", "second_moment_weight": 0.02},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::isogclr.losses.isogclr.RhoWarning")
@pytest.mark.parametrize("option", STABLE)
@pytest.mark.parametrize("rho", [BELOW, ABOVE])
def test_temperatures_converge_to_the_dual_solution(option: str, rho: float) -> None:
    options = {"temperature_init": 0.1} | STABLE[option]
    if rho == ABOVE and option == "small_rate":
        options |= {"temperature_init": 0.006, "temperature_rate": 4e-7}
    config = ISogCLRConfig(rho=rho, **options)
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


def test_the_recipe_s_step_swings() -> None:
    """η = 0.03, γ = 0.8 and small optima: not stable, as `docs/method.md` says. If this fails, it must change."""
    rho = 0.8 * math.log(BATCH - 1)
    optima = optimal_temperatures(IMAGES.numpy(), TEXTS.numpy(), rho, 0.005, 1.0)[0]
    assert np.median(optima) < 0.05
    _, history = learn(ISogCLRConfig(rho=rho), steps=400, record_from=300)
    history = history[:, :BATCH]
    assert np.median(history.max(axis=0) / history.min(axis=0)) > 1.5
    assert np.median(history.mean(axis=0) / optima) > 2  # and not around the optimum
    config = ISogCLRConfig(rho=rho, normalized_weights=True, temperature_rate=1e-4, temperature_init=0.05)
    _, history = learn(config, steps=1500, record_from=1400)
    assert np.median(history.max(axis=0) / history.min(axis=0)) < 1.01
    np.testing.assert_allclose(np.median(history[-1, :BATCH] / optima), 1, rtol=0.01)
