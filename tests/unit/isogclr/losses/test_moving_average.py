"""The losses against algorithm 2 as plain float64 loops, over 20 consecutive steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from isogclr.config import ISogCLRConfig, SogCLRConfig
from isogclr.losses import ISogCLRLoss, LossOutput, RhoWarning, SampleState, SogCLRLoss
from isogclr.losses.moving_average import MovingAverageLoss
from reference.algorithm2 import Algorithm2, Anchor

STEPS = 20
SAMPLES = 15
Batch = tuple[Tensor, Tensor, Tensor]  # images, texts, rows


def _random_pairs(batch: int, dimension: int, agreement: float) -> tuple[Tensor, Tensor]:
    images = normalize(torch.randn(batch, dimension, dtype=torch.float64), dim=1)
    noise = normalize(torch.randn(batch, dimension, dtype=torch.float64), dim=1)
    return images, normalize(agreement * images + (1 - agreement) * noise, dim=1)


def random_features() -> Iterator[Batch]:
    for _ in range(STEPS):
        yield *_random_pairs(9, 6, agreement=0.6), torch.randperm(SAMPLES)[:9]


def all_pairs_identical() -> Iterator[Batch]:
    one = normalize(torch.randn(1, 6, dtype=torch.float64), dim=1)
    for _ in range(STEPS):
        yield one.repeat(7, 1), one.repeat(7, 1), torch.randperm(SAMPLES)[:7]


def one_pair_opposite() -> Iterator[Batch]:
    """Its hardness reaches 2, so h/τ reaches 400 at the lower bound; the well-separated pairs reach −400."""
    for _ in range(STEPS):
        images, texts = _random_pairs(8, 6, agreement=0.98)
        texts[3] = -images[3]
        texts[4] = images[3]  # and another text is exactly the right one for that image
        images[5], images[6] = texts[5], -texts[5]
        yield images, texts, torch.arange(8)


def duplicated_rows() -> Iterator[Batch]:
    """A row twice and a row three times in one batch, with other features at each occurrence."""
    for _ in range(STEPS):
        rows = torch.tensor([4, 2, 4, 7, 2, 9, 2, 1])
        yield *_random_pairs(8, 6, agreement=0.5), rows[torch.randperm(8)]


def batch_of_two() -> Iterator[Batch]:
    for _ in range(STEPS):
        yield *_random_pairs(2, 6, agreement=0.4), torch.randperm(3)[:2]


def only_one_sample_has_negatives_missing() -> Iterator[Batch]:
    """Every pair is of one sample, except in every other step."""
    for step in range(STEPS):
        rows = torch.tensor([3, 3, 3, 3]) if step % 2 else torch.tensor([3, 3, 3, 5])
        yield *_random_pairs(4, 6, agreement=0.4), rows


SCENARIOS = [
    random_features,
    all_pairs_identical,
    one_pair_opposite,
    duplicated_rows,
    batch_of_two,
    only_one_sample_has_negatives_missing,
]

# Our options → those of the reference.
PAPER = ISogCLRConfig.preset("paper", rho=1.0, tile_rows=3)
OPTIONS: dict[str, tuple[ISogCLRConfig, dict[str, object]]] = {
    "paper": (PAPER, {}),
    "one_tile": (replace(PAPER, tile_rows=None), {}),
    "no_memory": (replace(PAPER, gamma=1.0), {"beta_0": 1.0}),
    "long_memory": (replace(PAPER, gamma=0.1), {"beta_0": 0.1}),
    "lower_bound": (replace(PAPER, rho=9.0, temperature_init=0.005), {"rho": 9.0, "tau_init": 0.005}),
    "upper_bound": (
        replace(PAPER, rho=1e-3, temperature_init=1.0, temperature_rate=3.0),
        {"rho": 1e-3, "tau_init": 1.0, "eta": 3.0},
    ),
    "small_steps": (
        replace(PAPER, temperature_rate=1e-4, temperature_init=0.07),
        {"eta": 1e-4, "tau_init": 0.07},
    ),
    "adam": (replace(PAPER, temperature_optimizer="adam"), {"adam": True, "eta": 0.001}),
    "normalized": (replace(PAPER, normalized_weights=True), {"normalized": True}),
    "log": (replace(PAPER, temperature_optimizer="log"), {"log": True, "eta": 0.2}),
    # With weights that are not normalised, G multiplies the rounding of log s, hundreds after a carry, by h/τ.
    "carried_mean": (
        replace(PAPER, carry_mean=True, normalized_weights=True, temperature_rate=1e-4),
        {"carry": True, "normalized": True, "eta": 1e-4},
    ),
    "log_and_carried_mean": (
        replace(PAPER, temperature_optimizer="log", carry_mean=True, normalized_weights=True),
        {"log": True, "eta": 0.2, "carry": True, "normalized": True},
    ),
    "global_log_and_carried_mean": (
        replace(
            PAPER,
            temperature_scope="global",
            temperature_optimizer="log",
            carry_mean=True,
            normalized_weights=True,
        ),
        {"one_tau": True, "log": True, "eta": 0.2, "carry": True, "normalized": True},
    ),
    "typical_start": (replace(PAPER, temperature_start="typical"), {"typical": True}),
    "log_and_typical_start": (
        replace(PAPER, temperature_start="typical", temperature_optimizer="log", temperature_init=0.3),
        {"typical": True, "log": True, "eta": 0.2, "tau_init": 0.3},
    ),
    "global": (replace(PAPER, temperature_scope="global"), {"one_tau": True}),
    "global_adam": (
        replace(PAPER, temperature_scope="global", temperature_optimizer="adam"),
        {"one_tau": True, "adam": True, "eta": 0.001},
    ),
    "global_normalized": (
        replace(PAPER, temperature_scope="global", normalized_weights=True),
        {"one_tau": True, "normalized": True},
    ),
}


def _evaluate(loss: MovingAverageLoss, batch: Batch, table: SampleState, shared: SampleState | None, dtype):
    images, texts, rows = batch
    leaves = [images.to(dtype, copy=True).requires_grad_(), texts.to(dtype, copy=True).requires_grad_()]
    output = loss(*leaves, rows=rows, state=table.take(rows), shared=shared)
    output.loss.backward()
    return output, leaves[0].grad, leaves[1].grad


def _set_reference(reference: Algorithm2, table: SampleState, shared: SampleState | None) -> None:
    """Continue the reference from the state of the loss, so that rounding does not add up over steps."""
    for name, direction in (("image", reference.image), ("text", reference.text)):
        for row in range(len(table)):
            visits = int(table.visits[row])
            if visits:
                column = {
                    key: float(table.columns[f"{name}_{key}"][row])
                    for key in ("temperature", "log_mean", "momentum", "second_moment")
                    if f"{name}_{key}" in table.columns
                }
                direction[row] = Anchor(
                    tau=column.get("temperature", reference.tau_init),
                    s=math.exp(column["log_mean"]),
                    u=column.get("momentum", 0.0),
                    v=column.get("second_moment", 0.0),
                    visits=visits,
                )
    if shared is not None and int(shared.visits[0]):
        values = {key: float(value[0]) for key, value in shared.columns.items()}
        if reference.typical:
            reference.starts = {key.removesuffix("_temperature"): value for key, value in values.items()}
            return
        reference.shared = Anchor(
            values["temperature"],
            u=values["momentum"],
            v=values.get("second_moment", 0.0),
            visits=int(shared.visits[0]),
        )


def _columns(reference: Algorithm2, rows: list[int], names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """New state of the rows as the reference has it, in the names of ours."""
    pick: dict[str, Callable[[Anchor], float]] = {
        "temperature": lambda a: a.tau,
        "log_mean": lambda a: math.log(a.s),
        "momentum": lambda a: a.u,
        "second_moment": lambda a: a.v,
    }
    result = {}
    for name in names:
        direction, field = name.split("_", 1)
        table = getattr(reference, direction)
        result[name] = np.array([pick[field](table[row]) if row in table else 0.0 for row in rows])
    return result


def _worst(ours, theirs, scale: float) -> float:
    """Largest error, relative to the largest entry or to `scale`, the size that such a quantity naturally has."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    return float(np.abs(ours - theirs).max() / max(np.abs(theirs).max(), scale))


def _errors(
    output: LossOutput, gradients, expected, reference: Algorithm2, table, names, batch: int
) -> dict[str, float]:
    errors = {
        "loss": _worst(output.loss.item(), expected.loss, max(expected.magnitude, 0.05)),
        "image gradient": _worst(gradients[0], expected.image_gradient, 1 / batch),
        "text gradient": _worst(gradients[1], expected.text_gradient, 1 / batch),
    }
    for name, values in _columns(reference, list(range(SAMPLES)), names).items():
        errors[name] = _worst(table.columns[name], values, 1.0 if "temperature" not in name else 0.005)
    for direction, start in reference.starts.items():
        errors[f"{direction} start"] = _worst(output.shared.columns[f"{direction}_temperature"], start, 0.005)
    if reference.shared is not None:
        errors["shared temperature"] = _worst(output.shared.columns["temperature"], reference.shared.tau, 0.005)
        errors["shared momentum"] = _worst(output.shared.columns["momentum"], reference.shared.u, 1.0)
    return errors


def check_steps(loss: MovingAverageLoss, reference: Algorithm2, scenario, dtype, tolerance) -> None:
    torch.manual_seed(7)
    table, shared = loss.initial_state(SAMPLES, dtype=dtype), loss.initial_shared(dtype=dtype)
    for step, (images, texts, rows) in enumerate(scenario()):
        batch = (images.to(dtype), texts.to(dtype), rows)
        if dtype == torch.float32:
            _set_reference(reference, table, shared)
        used = loss._temperatures(table.take(rows), shared)
        smallest = min(float(temperature.min()) for temperature in used)
        output, *gradients = _evaluate(loss, batch, table, shared, dtype)
        table.put(rows, output.state)
        shared = output.shared
        expected = reference.step(batch[0].double().numpy(), batch[1].double().numpy(), rows.tolist())
        errors = _errors(output, gradients, expected, reference, table, loss.state_columns, len(rows))
        wrong = {name: error for name, error in errors.items() if not error <= tolerance(smallest)}
        assert not wrong, f"step {step}: {wrong}, tolerance {tolerance(smallest):.1e}"


@pytest.mark.filterwarnings("ignore::isogclr.losses.isogclr.RhoWarning")
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("option", OPTIONS)
class TestISogCLR:
    def test_float64(self, option: str, scenario) -> None:
        config, theirs = OPTIONS[option]
        reference = Algorithm2(**({"beta_0": 0.8, "rho": 1.0} | theirs))
        check_steps(ISogCLRLoss(config), reference, scenario, torch.float64, lambda tau: 1e-10)

    def test_float32(self, option: str, scenario) -> None:
        """An fp32 similarity has an error of about 1e-7, which h/τ multiplies by 1/τ."""
        config, theirs = OPTIONS[option]
        reference = Algorithm2(**({"beta_0": 0.8, "rho": 1.0} | theirs))
        check_steps(ISogCLRLoss(config), reference, scenario, torch.float32, lambda tau: max(1e-5, 5e-7 / tau))


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("dtype", "floor", "slope"), [(torch.float64, 1e-10, 0.0), (torch.float32, 1e-5, 5e-7)])
def test_sogclr(scenario, dtype: torch.dtype, floor: float, slope: float) -> None:
    for temperature in (0.005, 0.07, 1.0):
        reference = Algorithm2(beta_0=0.7, tau_init=temperature, learn_tau=False)
        loss = SogCLRLoss(SogCLRConfig(gamma=0.7, temperature=temperature, tile_rows=4))
        check_steps(loss, reference, scenario, dtype, lambda tau: max(floor, slope / tau))


def test_scenarios_reach_what_they_claim() -> None:
    """h/τ beyond ±300 and temperatures at both bounds really occur."""
    torch.manual_seed(7)
    images, texts, _ = next(one_pair_opposite())
    similarity = images @ texts.T
    hardness = (similarity - similarity.diagonal()[:, None]) / 0.005
    assert hardness.max() > 300
    assert hardness.min() < -300
    for option, bound in (("lower_bound", 0.005), ("upper_bound", 1.0)):
        loss = ISogCLRLoss(OPTIONS[option][0])
        table = loss.initial_state(SAMPLES, dtype=torch.float64)
        with pytest.warns(RhoWarning) if option == "lower_bound" else nullcontext():
            for batch in random_features():
                output, *_ = _evaluate(loss, batch, table, None, torch.float64)
                table.put(batch[2], output.state)
        assert (table.columns["image_temperature"][table.visits > 0] == bound).any()
