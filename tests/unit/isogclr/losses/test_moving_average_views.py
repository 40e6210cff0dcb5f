"""SogCLR and iSogCLR with one direction against algorithm 1 as plain float64 loops."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from isogclr.config import ISogCLRConfig, SogCLRConfig, unimodal_defaults
from isogclr.errors import InputError
from isogclr.losses import VIEW_DIRECTIONS, ISogCLRLoss, SampleState, SogCLRLoss
from isogclr.losses.moving_average import MovingAverageLoss
from reference.algorithm2 import Anchor
from reference.views import Algorithm1
from support.unit_pairs import evaluate, unit_pairs

PICTURES = 9
ISOGCLR = {"rho": 1.0, "temperature_init": 0.1}


def isogclr(**options: object) -> ISogCLRLoss:
    return ISogCLRLoss(ISogCLRConfig.preset("paper", **{**ISOGCLR, **options}), directions=("image",))


def batches(duplicates: bool) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    for step in range(12):
        rows = torch.randperm(PICTURES, generator=generator)[:6]
        if duplicates:
            rows[3], rows[5] = rows[0], rows[1]
        yield *unit_pairs(6, agreement=0.6, seed=step), rows


def check_steps(loss: MovingAverageLoss, algorithm: Algorithm1, duplicates: bool) -> None:
    table, shared = loss.initial_state(PICTURES, dtype=torch.float64), loss.initial_shared(dtype=torch.float64)
    for step, (first, second, rows) in enumerate(batches(duplicates)):
        algorithm.beta_0 = loss.config.gamma_at()(step)
        value, gradient = algorithm.step(first.numpy(), second.numpy(), rows.tolist())
        output, *gradients = evaluate(
            loss, first, second, rows=rows, state=table.take(rows), shared=shared, step=step
        )
        table.put(rows, output.state)
        shared = output.shared
        assert output.loss.item() == pytest.approx(value, rel=1e-9)
        torch.testing.assert_close(torch.cat(gradients), torch.from_numpy(gradient), rtol=1e-9, atol=1e-11)
        for row, picture in algorithm.pictures.items():
            check_columns(table.take(torch.tensor([row])), picture)
        if algorithm.one_tau:
            check_columns(shared, algorithm.shared)


def check_columns(found: SampleState, expected: Anchor) -> None:
    values = {name.removeprefix("image_"): float(value) for name, value in found.columns.items()}
    if "log_mean" in values:
        assert math.exp(values["log_mean"]) == pytest.approx(expected.s, rel=1e-9)
    if "temperature" in values:
        assert values["temperature"] == pytest.approx(expected.tau, rel=1e-9)
        assert values["momentum"] == pytest.approx(expected.u, rel=1e-9, abs=1e-12)
    if "second_moment" in values:
        assert values["second_moment"] == pytest.approx(expected.v, rel=1e-9)


# Ours → those of the reference; docs/method.md has what they mean.
OPTIONS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "paper": ({}, {}),
    "one tile per anchor": ({"tile_rows": 1}, {}),
    "tiles": ({"tile_rows": 5}, {}),
    "cosine": ({"gamma": 0.3, "gamma_schedule": "cosine", "gamma_decay_steps": 8}, {}),
    "log": ({"temperature_optimizer": "log", "temperature_rate": 0.2}, {"log": True, "eta": 0.2}),
    "adam": ({"temperature_optimizer": "adam", "temperature_rate": 0.001}, {"adam": True, "eta": 0.001}),
    "normalized": ({"normalized_weights": True}, {"normalized": True}),
    "carry_mean": ({"carry_mean": True}, {"carry": True}),
    "typical": ({"temperature_start": "typical"}, {"typical": True}),
    "global": ({"temperature_scope": "global"}, {"one_tau": True}),
    "all of log": (
        {
            "temperature_optimizer": "log",
            "temperature_rate": 0.2,
            "normalized_weights": True,
            "carry_mean": True,
            "temperature_scope": "global",
        },
        {"log": True, "eta": 0.2, "normalized": True, "carry": True, "one_tau": True},
    ),
}


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_isogclr(name: str, duplicates: bool) -> None:
    ours, reference = OPTIONS[name]
    algorithm = Algorithm1(**{"beta_0": 0.8, "rho": 1.0, "eta": 0.01, "tau_init": 0.1, **reference})
    check_steps(isogclr(**{"temperature_rate": 0.01, **ours}), algorithm, duplicates)


def test_the_recipe_of_the_authors() -> None:
    config = ISogCLRConfig(**unimodal_defaults("isogclr"))
    assert (config.gamma, config.rho, config.momentum_weight) == (0.8, 0.4, 0.5)
    recipe = Algorithm1(beta_0=0.8, rho=0.4, eta=0.03, beta_1=0.5, tau_init=0.1, tau_0=0.05, tau_max=1.0)
    check_steps(ISogCLRLoss(config, directions=VIEW_DIRECTIONS), recipe, duplicates=False)


@pytest.mark.parametrize("duplicates", [False, True])
def test_sogclr(duplicates: bool) -> None:
    loss = SogCLRLoss(SogCLRConfig(gamma=0.7, temperature=0.1), directions=("image",))
    check_steps(loss, Algorithm1(beta_0=0.7, tau_init=0.1, learn_tau=False), duplicates)


def test_names_follow_the_direction() -> None:
    loss = isogclr()
    assert loss.state_columns == ("image_temperature", "image_log_mean", "image_momentum")
    output, *_ = evaluate(loss, *unit_pairs(6))
    found = loss.statistics(output)
    assert "image.temperature.q50" in found
    assert not any("text" in name for name in (*found, *output.details))


def test_normalized_weights_use_both_views_as_one_set() -> None:
    """γ = 1: s is g, the weights sum to 1 anyway, so that nothing changes."""
    views = unit_pairs(6)
    plain, *_ = evaluate(isogclr(gamma=1.0), *views)
    normalized, *_ = evaluate(isogclr(gamma=1.0, normalized_weights=True), *views)
    torch.testing.assert_close(plain.details["image_gradient"], normalized.details["image_gradient"])


def test_the_order_of_the_views_does_not_matter() -> None:
    first, second = unit_pairs(6)
    loss = isogclr()
    state = visited_pictures(loss)
    one, *gradients = evaluate(loss, first, second, state=state)
    other, *turned = evaluate(loss, second, first, state=state)
    torch.testing.assert_close(one.loss, other.loss)
    torch.testing.assert_close(gradients, turned[::-1])
    torch.testing.assert_close(dict(one.state.columns), dict(other.state.columns))


def visited_pictures(loss: ISogCLRLoss):
    state = loss.initial_state(6, dtype=torch.float64)
    state.columns["image_temperature"].fill_(0.2)
    state.columns["image_log_mean"].fill_(-1.0)
    state.visits.fill_(3)
    return state


def test_errors_name_the_inputs() -> None:
    loss = isogclr()
    with pytest.raises(InputError, match=r"second_features has shape \[6\], but must be 2-D"):
        loss(torch.zeros(6, 2), torch.zeros(6), rows=torch.arange(6), state=loss.initial_state(6))
    with pytest.raises(InputError, match="but must be one name or two"):
        SogCLRLoss(directions=("image", "text", "sound"))
