"""The losses of two views without state against plain float64 loops; what all of them have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from isogclr.config import unimodal_defaults
from isogclr.errors import ConfigError, InputError
from isogclr.losses import VIEW_DIRECTIONS, VIEW_LOSSES, ContrastiveLoss, ISogCLRLoss, SogCLRLoss, view_loss_class
from isogclr.losses.views import (
    BarlowTwinsLoss,
    FlatCLRLoss,
    SimCLRLoss,
    SimCoLoss,
    SpectralLoss,
    TauSimCLRLoss,
    VICRegLoss,
)
from reference import view_losses as reference
from support.unit_pairs import unit_pairs

Formula = Callable[..., Tensor]


@dataclass(frozen=True)
class Case:
    """A loss, the formula of its value and that of its gradient, and the options of both."""

    value: Formula
    gradient: Formula
    options: tuple[tuple[dict[str, object], dict[str, float]], ...] = field(default=(({}, {}),))


CASES = {
    "simclr": Case(
        reference.simclr,
        reference.simclr,
        (({}, {}), ({"temperature": 0.7, "tile_rows": 1}, {"tau": 0.7}), ({"tile_rows": 5}, {})),
    ),
    "flatclr": Case(
        reference.simclr,
        reference.flatclr_gradient,
        (({}, {}), ({"temperature": 0.3, "tile_rows": 2}, {"tau": 0.3})),
    ),
    "tau-simclr": Case(
        reference.tau_simclr,
        reference.tau_simclr,
        (({}, {}), ({"temperature": 0.5, "tile_rows": 3}, {"t": 0.5})),
    ),
    "simco": Case(
        reference.simco,
        reference.simco,
        (
            ({}, {}),
            ({"temperature": 0.2, "anchor_temperature": 0.6, "tile_rows": 2}, {"tau_alpha": 0.2, "tau_beta": 0.6}),
        ),
    ),
    "spectral": Case(
        reference.spectral,
        reference.spectral,
        (({}, {}), ({"squared_norm": 3.0}, {"mu": 3.0}), ({"squared_norm": 1e4}, {"mu": 1e4})),
    ),
    "barlow-twins": Case(
        reference.barlow_twins,
        reference.barlow_twins,
        (({}, {}), ({"redundancy_weight": 0.5}, {"weight": 0.5})),
    ),
    "vicreg": Case(
        reference.vicreg,
        reference.vicreg,
        (
            ({}, {}),
            (
                {"invariance_weight": 2.0, "variance_weight": 3.0, "covariance_weight": 5.0},
                {"invariance": 2.0, "variance": 3.0, "covariance": 5.0},
            ),
        ),
    ),
}
OPTIONS = [(name, number) for name, case in CASES.items() for number in range(len(case.options))]
ROWS = {
    "distinct": [0, 1, 2, 3, 4, 5],
    "duplicates": [3, 1, 3, 0, 1, 7],
    "one picture alone": [2, 2, 2, 2, 5, 2],
}


def create(name: str, **options: object) -> ContrastiveLoss:
    cls = view_loss_class(name)
    assert cls.config_class is not None
    return cls(cls.config_class(**options), directions=VIEW_DIRECTIONS)


def inputs(name: str, batch: int = 6, dimension: int = 4, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Unit features, those with an output more, or of any length: as the loss wants them."""
    first, second = unit_pairs(batch, dimension, agreement=0.6, seed=3)
    generator = torch.Generator().manual_seed(4)
    extra = torch.randn(2, batch, 1, generator=generator, dtype=torch.float64)
    cls = view_loss_class(name)
    if cls.extra_outputs:
        first, second = torch.cat([first, 2 * extra[0]], dim=1), torch.cat([second, 2 * extra[1]], dim=1)
    elif not cls.unit_features:
        columns = torch.logspace(-0.7, 0.5, dimension, dtype=torch.float64)  # deviations on both sides of 1
        first, second = (view * columns * extra[i].exp() for i, view in enumerate((first, second)))
    return [first.to(dtype), second.to(dtype)]


def leaves(tensors: list[Tensor]) -> list[Tensor]:
    return [tensor.clone().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("dimension", [4, 17])  # few features for the batch, and many
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("name", "number"), OPTIONS)
def test_value_and_gradient(name: str, number: int, rows: str, dimension: int) -> None:
    case, (ours, theirs) = CASES[name], CASES[name].options[number]
    features, expected = leaves(inputs(name, dimension=dimension)), leaves(inputs(name, dimension=dimension))
    output = create(name, **ours)(*features, rows=torch.tensor(ROWS[rows]))
    (3 * output.loss).backward()
    value = case.value(*expected, ROWS[rows], **theirs)
    (3 * case.gradient(*expected, ROWS[rows], **theirs)).backward()
    assert output.loss.item() == pytest.approx(value.item(), rel=1e-9, abs=1e-12)
    for found, exact in zip(features, expected, strict=True):
        assert exact.grad.abs().max() > 1e-6
        torch.testing.assert_close(found.grad, exact.grad, rtol=1e-9, atol=1e-9 * float(exact.grad.abs().max()))


def test_the_features_cross_the_bounds() -> None:
    """Or the tests above would see only one side of VICReg's hinge and of the cut."""
    for name in ("spectral", "vicreg"):
        lengths = torch.cat(inputs(name)).norm(dim=1)
        assert lengths.min() < 1 < math.sqrt(3) < lengths.max() < 100, lengths
    deviations = torch.stack(inputs("vicreg")).std(dim=1)
    assert deviations.min() < 1 < deviations.max(), deviations


@pytest.mark.parametrize("name", CASES)
def test_without_rows_every_pair_is_a_sample(name: str) -> None:
    loss, features = create(name), inputs(name)
    assert torch.equal(loss(*features).loss, loss(*features, rows=torch.arange(6)).loss)


def test_flatnce_as_its_paper_writes_it_has_the_same_gradient() -> None:
    one, other = leaves(inputs("flatclr")), leaves(inputs("flatclr"))
    create("flatclr")(*one).loss.backward()
    value = reference.flatnce(*other, ROWS["distinct"])
    value.backward()
    assert value.item() == pytest.approx(1)
    for found, exact in zip(one, other, strict=True):
        torch.testing.assert_close(found.grad, exact.grad, rtol=1e-9, atol=1e-11)


def test_registry() -> None:
    names = "simclr sogclr isogclr barlow-twins vicreg flatclr spectral simco tau-simclr"
    assert list(VIEW_LOSSES) == names.split()
    ours = (SimCLRLoss, BarlowTwinsLoss, VICRegLoss, FlatCLRLoss, SpectralLoss, SimCoLoss, TauSimCLRLoss)
    assert set(VIEW_LOSSES.values()) == {*ours, ISogCLRLoss, SogCLRLoss}
    with pytest.raises(InputError, match=r"no loss of two views 'clip'; choose one of simclr, sogclr"):
        view_loss_class("clip")
    assert {name for name, cls in VIEW_LOSSES.items() if not cls.unit_features} == {
        "barlow-twins",
        "vicreg",
        "spectral",
    }
    assert {name: cls.extra_outputs for name, cls in VIEW_LOSSES.items() if cls.extra_outputs} == {"tau-simclr": 1}


@pytest.mark.parametrize("name", VIEW_LOSSES)
def test_created_as_the_program_does(name: str) -> None:
    cls = view_loss_class(name)
    assert cls.config_class is not None
    loss = cls(cls.config_class(**unimodal_defaults(name)), ranks=None, directions=VIEW_DIRECTIONS)
    assert loss.directions == ("image",)
    assert loss.unit_features == cls.unit_features
    assert loss.described_options()["validate"] is False
    features = leaves(inputs(name, 8))
    output = loss(
        *features,
        rows=torch.arange(8),
        state=loss.initial_state(8),
        shared=loss.initial_shared(),
        step=3,
        logit_scale=None,
        logit_bias=None,
    )
    output.loss.backward()
    assert all(torch.isfinite(value) for value in loss.statistics(output).values())
    assert all(feature.grad.abs().max() > 0 for feature in features)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_does_not_reach_the_loss(name: str, dtype: torch.dtype) -> None:
    """Half-precision features under autocast equal fp32 features rounded the same way."""
    rounded = [tensor.to(dtype) for tensor in inputs(name)]
    exact, half = leaves([tensor.float() for tensor in rounded]), leaves(rounded)
    expected = create(name)(*exact).loss
    with torch.autocast("cpu", dtype=dtype):
        found = create(name)(*half).loss
    expected.backward()
    found.backward()
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)
    for ours, theirs in zip(half, exact, strict=True):
        assert torch.equal(ours.grad, theirs.grad.to(dtype))


@pytest.mark.parametrize("name", CASES)
def test_fp32_is_close(name: str) -> None:
    exact, single = leaves(inputs(name, 16)), leaves(inputs(name, 16, dtype=torch.float32))
    create(name)(*exact).loss.backward()
    create(name)(*single).loss.backward()
    for found, expected in zip(single, exact, strict=True):
        scale = float(expected.grad.abs().max())
        torch.testing.assert_close(found.grad.double(), expected.grad, rtol=0, atol=2e-5 * scale)


@pytest.mark.parametrize("name", CASES)
def test_a_step_on_a_gpu_never_waits_for_the_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On fake CUDA tensors, which have no values, `.item()` or a branch on a value would raise."""
    # Autograd's engine looks for the device itself.
    monkeypatch.setattr(torch.autograd, "grad", lambda _, leaves: [torch.zeros_like(leaf) for leaf in leaves])
    loss = create(name)
    with FakeTensorMode():
        features = [torch.randn(32, 8, device="cuda", requires_grad=True) for _ in range(2)]
        output = loss(*features, rows=torch.zeros(32, dtype=torch.int64))
        assert output.loss.requires_grad
        assert output.loss.device.type == "cuda"


@pytest.mark.parametrize("name", CASES)
def test_without_gradients_the_value_is_the_same(name: str) -> None:
    loss, features = create(name), inputs(name)
    expected = loss(*leaves(features)).loss
    with torch.no_grad():
        assert torch.equal(loss(*leaves(features)).loss, expected.detach())
    assert not loss(*features).loss.requires_grad


@pytest.mark.parametrize("name", CASES)
def test_what_it_is_called_with_is_checked(name: str) -> None:
    first, second = inputs(name)
    loss = create(name, validate=True)
    loss(first, second)
    with pytest.raises(InputError, match=r"first_features has shape \[6, 4?5?\] and second_features \[5, "):
        loss(first, second[:5])
    with pytest.raises(InputError, match=r"rows has shape \[5\], but must be \[6\]"):
        loss(first, second, rows=torch.arange(5))
    with pytest.raises(InputError, match="rows has a minimum of -1"):
        loss(first, second, rows=torch.arange(-1, 5))
    with pytest.raises(InputError, match="the global batch is 1, but must be 2 or more"):
        loss(first[:1], second[:1])
    bad = second.clone()
    bad[2, 0] = math.nan
    with pytest.raises(InputError, match="second_features is not finite in 1 of 6 rows"):
        loss(first, bad)
    if loss.unit_features:
        with pytest.raises(InputError, match="second_features has a row whose length differs from 1 by"):
            loss(first, torch.cat([2 * second[:, :3], second[:, 3:]], dim=1))
    with pytest.raises(ConfigError, match="config is a str"):
        type(loss)("0.1", directions=VIEW_DIRECTIONS)
    with pytest.raises(InputError, match="directions are"):
        type(loss)(directions=("one", "two", "three"))


def test_tau_simclr_needs_its_output() -> None:
    with pytest.raises(InputError, match="first_features has 1 columns, but must have more than 1"):
        create("tau-simclr")(torch.ones(4, 1), torch.ones(4, 1))


@pytest.mark.parametrize("name", CASES)
def test_wrong_options_are_named(name: str) -> None:
    config_class = view_loss_class(name).config_class
    assert config_class is not None
    numbers = {
        option: -1.0 for option in config_class.__dataclass_fields__ if option not in ("validate", "tile_rows")
    }
    with pytest.raises(ConfigError) as problems:
        config_class(**numbers)
    for option in numbers:
        assert f"{option} is -1.0, but must be" in str(problems.value)


class TestExtremes:
    """fp32, where the textbook formula would overflow or cancel."""

    @pytest.mark.parametrize("loss", [SimCLRLoss, FlatCLRLoss, SimCoLoss])
    def test_small_temperatures(self, loss: type[ContrastiveLoss]) -> None:
        assert loss.config_class is not None
        config = loss.config_class(temperature=0.002)
        features = leaves(inputs("simclr", dtype=torch.float32))
        exact = leaves(inputs("simclr"))
        for tensors in (features, exact):
            output = loss(config, directions=VIEW_DIRECTIONS)(*tensors).loss
            output.backward()
            assert torch.isfinite(output)
        for found, expected in zip(features, exact, strict=True):
            assert torch.isfinite(found.grad).all()
            scale = float(expected.grad.abs().max())
            torch.testing.assert_close(found.grad.double(), expected.grad, rtol=0, atol=1e-3 * scale)

    def test_found_partners_keep_their_digits(self) -> None:
        """−log p of 1e-9 and its gradient: 1 − p and log(1 + …) would be 0 in fp32."""
        first = torch.eye(4, dtype=torch.float64)
        exact, single = leaves([first, first]), leaves([first.float(), first.float()])
        config = {"temperature": 0.05}
        expected, found = (create("simclr", **config)(*tensors).loss for tensors in (exact, single))
        expected.backward()
        found.backward()
        assert 0 < expected.item() < 1e-7
        assert found.item() == pytest.approx(expected.item(), rel=1e-5)
        torch.testing.assert_close(single[0].grad.double(), exact[0].grad, rtol=1e-5, atol=0)

    def test_outputs_of_any_size(self) -> None:
        """sigmoid(e) is 0 or 1 in fp32."""
        features = inputs("tau-simclr", dtype=torch.float32)
        features[0][:3, -1], features[1][2:, -1] = -500.0, 500.0
        given = leaves(features)
        output = create("tau-simclr")(*given).loss
        output.backward()
        assert torch.isfinite(output)
        assert all(torch.isfinite(tensor.grad).all() for tensor in given)

    def test_views_that_are_all_the_same(self) -> None:
        """Collapse: no variance at all."""
        same = torch.ones(6, 4)
        for name in ("barlow-twins", "vicreg", "spectral"):
            given = leaves([same, same])
            output = create(name)(*given).loss
            output.backward()
            assert torch.isfinite(output)
            assert all(torch.isfinite(tensor.grad).all() for tensor in given)


def test_vicreg_of_images_and_texts_scales_unit_features() -> None:
    """So that a deviation of 1 can be reached: VICReg of √D times the features."""
    images, texts = unit_pairs(12, 16, agreement=0.3)
    ours, theirs = leaves([images, texts]), leaves([images, texts])
    loss = VICRegLoss()
    assert loss.directions == ("image", "text")
    assert loss.unit_features
    output = loss(*ours, logit_scale=torch.tensor(10.0)).loss
    expected = reference.vicreg(4 * theirs[0], 4 * theirs[1], [*range(12)])
    output.backward()
    expected.backward()
    assert output.item() == pytest.approx(expected.item(), rel=1e-9)
    for found, exact in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found.grad, exact.grad, rtol=1e-9, atol=1e-11)


def test_no_second_derivatives() -> None:
    features = leaves(inputs("vicreg"))
    output = create("vicreg")(*features).loss
    with pytest.raises(InputError, match="no second derivatives"):
        torch.autograd.grad(output, features, create_graph=True)
