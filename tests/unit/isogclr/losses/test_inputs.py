"""Bad input: a typed error that names the argument, what it was and what it must be."""

from __future__ import annotations

import math

import pytest
import torch

from isogclr.config import CyCLIPConfig, ISogCLRConfig, MovingAverageConfig, SogCLRConfig
from isogclr.errors import ConfigError, InputError, IsogclrError
from isogclr.losses import CyCLIPLoss, ISogCLRLoss, SampleState, SogCLRLoss, loss_class
from support.unit_pairs import unit_pairs, visited

GOOD = unit_pairs(4, dtype=torch.float32)
ROWS = torch.arange(4)


def call(images=GOOD[0], texts=GOOD[1], rows=ROWS, state="fresh", *, validate: bool = False, **options):
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5, validate=validate))
    state = loss.initial_state(4) if state == "fresh" else state
    return loss(images, texts, rows=rows, state=state, **options)


def features(value: float) -> torch.Tensor:
    changed = GOOD[0].clone()
    changed[2] = value
    return changed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": GOOD[0][0]}, r"image_features has shape \[8\], but must be 2-D"),
        ({"texts": GOOD[1][None]}, r"text_features has shape \[1, 4, 8\], but must be 2-D"),
        (
            {"texts": GOOD[1][:3]},
            r"image_features has shape \[4, 8\] and text_features \[3, 8\], but they must be equal",
        ),
        ({"texts": GOOD[1][:, :5]}, r"and text_features \[4, 5\], but they must be equal"),
        ({"images": GOOD[0].long()}, "image_features has dtype torch.int64, but must be a floating dtype"),
        ({"texts": GOOD[1].half()}, "image_features is torch.float32 on cpu and text_features torch.float16"),
        ({"images": GOOD[0].numpy()}, "image_features is a ndarray, but must be a torch.Tensor"),
        ({"rows": [0, 1, 2, 3]}, "rows is a list, but must be a torch.Tensor"),
        ({"rows": ROWS.numpy()}, "rows is a ndarray, but must be a torch.Tensor"),
        ({"state": {}}, "state is a dict, but must be a SampleState"),
        ({"rows": None}, "rows is None, but this loss keeps state"),
        ({"rows": ROWS.int()}, "rows has dtype torch.int32, but must be torch.int64"),
        ({"rows": ROWS[:3]}, r"rows has shape \[3\], but must be \[4\]"),
        ({"rows": ROWS[None]}, r"rows has shape \[1, 4\], but must be \[4\]"),
        ({"state": None}, "state is None, but this loss keeps image_temperature, .*loss.initial_state"),
        (
            {"state": SogCLRLoss().initial_state(4)},
            "state lacks image_temperature, image_momentum, .* it has image_log",
        ),
        ({"state": ISogCLRLoss().initial_state(5)}, r"state: image_temperature has shape \[5\], but must be \[4\]"),
    ],
)
def test_shapes_and_dtypes_are_always_checked(arguments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": features(math.nan)}, "image_features is not finite in 1 of 4 rows"),
        ({"images": features(math.inf)}, "image_features is not finite in 1 of 4 rows"),
        (
            {"images": features(2.0)},
            "image_features has a row whose length differs from 1 by 4.66, but at most 0.001",
        ),
        ({"texts": 1.01 * GOOD[1]}, "text_features has a row whose length differs from 1 by 0.01"),
        ({"rows": ROWS - 1}, "rows has a minimum of -1, but rows are positions in the state: 0 or more"),
    ],
)
def test_values_are_checked_when_asked(arguments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(**arguments, validate=True)
    call(**arguments)  # not asked: no look at the values


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rounded_unit_features_are_good(dtype: torch.dtype) -> None:
    images, texts = unit_pairs(64, 512)
    loss = SogCLRLoss(SogCLRConfig(validate=True))
    output = loss(images.to(dtype), texts.to(dtype), rows=torch.arange(64), state=loss.initial_state(64))
    assert torch.isfinite(output.loss)


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_without_negatives(batch: int) -> None:
    images, texts = GOOD[0][:batch], GOOD[1][:batch]
    for loss in (SogCLRLoss(), CyCLIPLoss()):
        state = loss.initial_state(batch)
        with pytest.raises(InputError, match=f"the global batch is {batch}, but must be 2 or more"):
            loss(images, texts, rows=ROWS[:batch], state=state, logit_scale=torch.tensor(1.0))


@pytest.mark.parametrize("name", ["clip", "siglip", "cyclip"])
def test_a_missing_logit_scale(name: str) -> None:
    with pytest.raises(InputError, match="logit_scale is None"):
        loss_class(name)()(*GOOD)


def test_a_missing_shared_state() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5, temperature_scope="global"))
    with pytest.raises(
        InputError, match=r"shared is None, but this loss keeps temperature, momentum.*initial_shared"
    ):
        loss(*GOOD, rows=ROWS, state=loss.initial_state(4))
    wrong = SampleState.zeros(loss.shared_columns, 2)
    with pytest.raises(InputError, match=r"shared: temperature has shape \[2\], but must be \[1\]"):
        loss(*GOOD, rows=ROWS, state=loss.initial_state(4), shared=wrong)


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (SogCLRConfig, {"gamma": 0.0}, r"gamma is 0.0, but must be a number in \(0, 1\]"),
        (SogCLRConfig, {"gamma": 1.1}, r"gamma is 1.1, but must be a number in \(0, 1\]"),
        (SogCLRConfig, {"gamma": math.nan}, "gamma is nan"),
        (SogCLRConfig, {"temperature": 0.0}, "temperature is 0.0, but must be a finite number above 0"),
        (
            SogCLRConfig,
            {"gamma_schedule": "linear"},
            r"gamma_schedule is 'linear', but must be one of \('constant', 'cos",
        ),
        (
            SogCLRConfig,
            {"gamma_schedule": "cosine"},
            "gamma_decay_steps is None, but must be a whole number of steps",
        ),
        (ISogCLRConfig, {"temperature_min": 0.1}, r"\(0.1, 0.05, 1.0\), but must be in ascending order"),
        (ISogCLRConfig, {"temperature_init": 2.0}, r"\(0.005, 2.0, 1.0\), but must be in ascending order"),
        (ISogCLRConfig, {"temperature_min": -1.0}, "temperature_min is -1.0, but must be a finite number above 0"),
        (ISogCLRConfig, {"rho": -1.0}, "rho is -1.0"),
        (
            ISogCLRConfig,
            {"temperature_rate": -0.1},
            "temperature_rate is -0.1, but must be a finite number, at least 0",
        ),
        (ISogCLRConfig, {"momentum_weight": 0.0}, r"momentum_weight is 0.0, but must be a number in \(0, 1\]"),
        (ISogCLRConfig, {"temperature_optimizer": "sgd"}, "temperature_optimizer is 'sgd', but must be one of"),
        (ISogCLRConfig, {"temperature_scope": "both"}, "temperature_scope is 'both', but must be one of"),
        (ISogCLRConfig, {"tile_rows": 0}, "tile_rows is 0, but must be a whole number above 0, or None"),
        (
            CyCLIPConfig,
            {"in_modal_weight": -1.0},
            "in_modal_weight is -1.0, but must be a finite number, at least 0",
        ),
        (CyCLIPConfig, {"tile_rows": -3}, "tile_rows is -3"),
        (CyCLIPConfig, {"tile_rows": 2.5}, "tile_rows is 2.5"),
        (CyCLIPConfig, {"tile_rows": True}, "tile_rows is True"),
        (SogCLRConfig, {"gamma": "0.8"}, "gamma is '0.8', but must be a number"),
        (SogCLRConfig, {"gamma": None}, "gamma is None, but must be a number"),
        (SogCLRConfig, {"gamma_decay_steps": -3}, "gamma_decay_steps is -3"),
        (ISogCLRConfig, {"temperature_max": math.inf}, "temperature_max is inf, but must be a finite number"),
        (ISogCLRConfig, {"temperature_init": "hot"}, "temperature_init is 'hot', but must be a finite number"),
    ],
)
def test_configurations(config, options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**options)


def test_all_problems_of_a_configuration_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        ISogCLRConfig.preset("paper", gamma=2.0, rho=0.0, temperature_scope="x")  # type: ignore[arg-type]
    assert len(caught.value.problems) == 3
    assert all(word in str(caught.value) for word in ("gamma", "rho", "temperature_scope"))
    assert isinstance(caught.value, IsogclrError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("image_temperature", 0.0, "state: image_temperature is 0 at position 1, but must be finite"),
        ("text_temperature", -1.0, "state: text_temperature is -1 at position 1"),
        ("text_log_mean", math.nan, "state: text_log_mean is nan at position 1"),
    ],
)
def test_values_of_the_state_are_checked_when_asked(column: str, value: float, message: str) -> None:
    state = visited(ISogCLRLoss(), 4, torch.float32, temperature=0.05, log_mean=-1.0)
    state.columns[column][1] = value
    with pytest.raises(InputError, match=message):
        call(state=state, validate=True)
    state.visits[1] = 0  # never visited: its columns mean nothing
    call(state=state, validate=True)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (10.0, "logit_scale is a float, but must be a torch.Tensor"),
        (torch.ones(2), r"logit_scale has shape \[2\], but must be one number"),
        (torch.tensor(-1.0), "logit_scale is -1, but must be finite and above 0"),
    ],
)
def test_logit_scale(scale, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CyCLIPLoss(CyCLIPConfig(validate=True))(*GOOD, logit_scale=scale)


@pytest.mark.parametrize("loss", [ISogCLRLoss, SogCLRLoss, CyCLIPLoss])
@pytest.mark.parametrize("config", [{"rho": 1.0}, MovingAverageConfig()])
def test_the_configuration_of_another_loss(loss, config) -> None:
    with pytest.raises(ConfigError, match=f"config is a {type(config).__name__}, but must be a "):
        loss(config)


def test_a_table_is_not_written_with_the_state_of_another_loss() -> None:
    table = ISogCLRLoss().initial_state(4)
    with pytest.raises(InputError, match="new lacks image_temperature, image_momentum"):
        table.put(ROWS, SogCLRLoss().initial_state(4))


def test_second_derivatives_are_refused() -> None:
    """They would silently be zero."""
    images = GOOD[0].clone().requires_grad_()
    loss = call(images=images).loss
    with pytest.raises(InputError, match="no second derivatives"):
        torch.autograd.grad(loss, images, create_graph=True)
