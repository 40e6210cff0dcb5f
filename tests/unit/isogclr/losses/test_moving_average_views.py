"""SogCLR and iSogCLR with one direction against algorithm 1 as plain float64 loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from isogclr.config import ISogCLRConfig, SogCLRConfig
from isogclr.errors import InputError
from isogclr.losses import ISogCLRLoss, SogCLRLoss
from isogclr.losses.moving_average import MovingAverageLoss
from reference.views import Algorithm1
from support.unit_pairs import evaluate, unit_pairs

PICTURES = 9
ISOGCLR = {"rho": 1.0, "temperature_init": 0.1}


def isogclr(**options: object) -> ISogCLRLoss:
    return ISogCLRLoss(ISogCLRConfig(**{**ISOGCLR, **options}), directions=("image",))


def batches(duplicates: bool) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(2)
    for step in range(12):
        rows = torch.randperm(PICTURES, generator=generator)[:6]
        if duplicates:
            rows[3], rows[5] = rows[0], rows[1]
        yield *unit_pairs(6, agreement=0.6, seed=step), rows


def check_steps(loss: MovingAverageLoss, algorithm: Algorithm1, duplicates: bool) -> None:
    table = loss.initial_state(PICTURES, dtype=torch.float64)
    for first, second, rows in batches(duplicates):
        value, gradient = algorithm.step(first.numpy(), second.numpy(), rows.tolist())
        output, *gradients = evaluate(loss, first, second, rows=rows, state=table.take(rows))
        table.put(rows, output.state)
        assert output.loss.item() == pytest.approx(value, rel=1e-10)
        torch.testing.assert_close(torch.cat(gradients), torch.from_numpy(gradient), rtol=1e-10, atol=1e-12)
        for row, picture in algorithm.pictures.items():
            assert float(table.columns["image_log_mean"][row].exp()) == pytest.approx(picture.s, rel=1e-10)
            if "image_temperature" in table.columns:
                assert float(table.columns["image_temperature"][row]) == pytest.approx(picture.tau, rel=1e-10)
                assert float(table.columns["image_momentum"][row]) == pytest.approx(picture.u, rel=1e-10)


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("tile_rows", [None, 1, 5])
def test_isogclr(duplicates: bool, tile_rows: int | None) -> None:
    algorithm = Algorithm1(beta_0=0.8, rho=1.0, eta=0.01, tau_init=0.1)
    check_steps(isogclr(temperature_rate=0.01, tile_rows=tile_rows), algorithm, duplicates)


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
