"""What the losses share: registry, options, statistics, the model's logit_scale, state that can not be updated."""

from __future__ import annotations

import math

import open_clip.loss
import pytest
import torch

import isogclr
from isogclr import objective
from isogclr.config import ISogCLRConfig, SogCLRConfig
from isogclr.errors import ConfigError, InputError
from isogclr.losses import LOSSES, CyCLIPLoss, ISogCLRLoss, RhoWarning, SampleState, SogCLRLoss, loss_class
from support.unit_pairs import evaluate, unit_pairs, visited


def test_registry() -> None:
    assert list(LOSSES) == ["clip", "siglip", "cyclip", "vicreg", "sogclr", "isogclr"]
    assert loss_class("isogclr") is isogclr.ISogCLRLoss
    with pytest.raises(
        InputError, match="there is no loss 'iso'; choose one of clip, siglip, cyclip, vicreg, sogclr, isog"
    ):
        loss_class("iso")


@pytest.mark.parametrize(
    ("options", "columns", "shared"),
    [
        ({}, ["temperature", "log_mean", "momentum"], ()),
        ({"temperature_optimizer": "adam"}, ["temperature", "log_mean", "momentum", "second_moment"], ()),
        ({"temperature_scope": "global"}, ["log_mean"], ("temperature", "momentum")),
        (
            {"temperature_start": "typical"},
            ["temperature", "log_mean", "momentum"],
            ("image_temperature", "text_temperature"),
        ),
    ],
)
def test_state_columns(options, columns, shared) -> None:
    """The store lays its rows out by these names, in this order."""
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", **options))
    assert loss.state_columns == tuple(f"{d}_{name}" for d in ("image", "text") for name in columns)
    assert loss.shared_columns == shared


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_open_clip_losses_pass_through(name: str) -> None:
    images, texts = unit_pairs(6, dtype=torch.float32)
    scale, bias = torch.tensor(8.0), torch.tensor(-3.0) if name == "siglip" else None
    ours = loss_class(name)()
    original = {"clip": open_clip.loss.ClipLoss, "siglip": open_clip.loss.SigLipLoss}[name]()
    output = ours(images, texts, logit_scale=scale, logit_bias=bias)
    assert torch.equal(output.loss, original(images, texts, scale, bias))
    assert output.state is None


def test_open_clip_options_are_passed_on() -> None:
    loss = loss_class("clip")(local_loss=True, gather_with_grad=True)
    assert loss.inner.local_loss is True
    assert loss.config is None
    assert loss.described_options() == {"local_loss": True, "gather_with_grad": True}


@pytest.mark.parametrize("name", ["isogclr", "sogclr", "cyclip"])
def test_a_loss_describes_its_configuration(name: str) -> None:
    """As plain values, which is what a checkpoint keeps."""
    cls = loss_class(name)
    config = cls.config_class(tile_rows=5)
    loss = cls(config)
    assert loss.config is config
    described = loss.described_options()
    assert cls.config_class(**described) == config
    assert all(value is None or type(value) in (bool, int, float, str) for value in described.values())


def test_only_isogclr_has_bounds_of_learned_temperatures() -> None:
    config = ISogCLRConfig.preset("paper", temperature_min=0.02, temperature_init=0.1, temperature_max=0.5)
    assert ISogCLRLoss(config).temperature_bounds == (0.02, 0.5)
    assert [loss_class(name)().temperature_bounds for name in ("sogclr", "cyclip", "clip")] == [None] * 3


@pytest.mark.parametrize("create", [lambda: ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5)), SogCLRLoss])
def test_an_unused_logit_scale_stays_in_the_graph(create) -> None:
    """Otherwise DistributedDataParallel waits for its gradient for ever."""
    scale, bias = torch.tensor(3.0, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    with_both, *_ = evaluate(create(), *unit_pairs(4), logit_scale=scale, logit_bias=bias)
    without, *_ = evaluate(create(), *unit_pairs(4), logit_scale=None)
    assert scale.grad == 0
    assert bias.grad == 0
    assert torch.equal(with_both.loss, without.loss)


class TestRhoWarning:
    def test_warns_when_the_constraint_can_not_bind(self) -> None:
        loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=6.0))
        images, texts = unit_pairs(8)
        state = loss.initial_state(8, dtype=torch.float64)
        with pytest.warns(RhoWarning, match=r"rho is 6, but in a batch of 8 .* log\(8 - 1\) = 1\.946") as caught:
            loss(images, texts, rows=torch.arange(8), state=state)
        assert caught[0].filename == __file__  # it points to the caller

    def test_warns_from_the_bound_on(self) -> None:
        with pytest.warns(RhoWarning):
            evaluate(ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.001 * math.log(7))), *unit_pairs(8))

    def test_warns_once_for_a_batch_size(self, recwarn: pytest.WarningsRecorder) -> None:
        loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=6.0))
        for batch in (8, 8, 8, 9, 9):
            evaluate(loss, *unit_pairs(batch))
        assert len(recwarn) == 2

    def test_is_silent_below(self, recwarn: pytest.WarningsRecorder) -> None:
        evaluate(ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.99 * math.log(7))), *unit_pairs(8))
        assert not len(recwarn)

    def test_the_bound_is_tight(self) -> None:
        """All weight on one negative: KL = log(B − 1); ρ just above it drives τ down, just below up."""
        similarity = torch.zeros(1, 7, dtype=torch.float64)
        similarity[0, 3] = 1.0
        h = objective.hardness(similarity, torch.zeros(1, dtype=torch.float64))
        tau, negative = torch.tensor([1e-3], dtype=torch.float64), torch.ones(1, 7, dtype=torch.bool)
        log_g = objective.log_batch_mean(h, tau, negative)
        weighted = objective.surrogate(objective.weights(h, tau, log_g, negative), h)
        for rho, sign in ((math.log(7) + 1e-3, 1), (math.log(7) - 1e-3, -1)):
            assert objective.temperature_gradient(weighted, tau, log_g, rho, 5.0) * sign > 0


def test_cosine_gamma_reaches_the_moving_average() -> None:
    config = SogCLRConfig(gamma=0.2, gamma_schedule="cosine", gamma_decay_steps=100)
    loss, images, texts = SogCLRLoss(config), *unit_pairs(6)
    g = evaluate(SogCLRLoss(SogCLRConfig(gamma=1.0)), images, texts)[0].state.columns["image_log_mean"].exp()
    state = visited(loss, 6, log_mean=-1.0)
    for step, gamma in ((0, 1.0), (50, 0.6), (100, 0.2), (1000, 0.2)):
        output, *_ = evaluate(loss, images, texts, state=state, step=step)
        expected = (1 - gamma) * math.exp(-1.0) + gamma * g
        torch.testing.assert_close(output.state.columns["image_log_mean"].exp(), expected)


def test_a_sample_without_negatives_is_left_alone() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5))
    rows = torch.full((4,), 2)
    state = visited(loss, 4, temperature=0.07, log_mean=-1.0, momentum=0.2)
    output, *gradients = evaluate(loss, *unit_pairs(4), rows=rows, state=state)
    assert output.loss == 0
    assert torch.equal(output.state.visits, state.visits)
    for name, value in state.columns.items():
        assert torch.equal(output.state.columns[name], value)
    assert not any(gradient.any() for gradient in gradients)
    found = loss.statistics(output)
    assert all(torch.isfinite(value) for name, value in found.items() if ".q" not in name)
    assert torch.isnan(found["image.temperature.q50"])


def test_state_that_is_not_finite_keeps_the_old_row_and_is_counted() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5))
    state = visited(loss, 5, temperature=0.07, log_mean=-1.0, momentum=0.2)
    state.columns["text_momentum"][3] = math.nan
    output, *_ = evaluate(loss, *unit_pairs(5), state=state)
    assert output.state.visits.tolist() == [2, 2, 2, 1, 2]
    assert output.state.columns["image_temperature"][3] == 0.07
    assert output.state.columns["image_log_mean"][3] == -1.0
    assert (output.state.columns["image_log_mean"][[0, 1, 2, 4]] != -1.0).all()
    found = loss.statistics(output)
    assert found["kept_rows"] == 1
    assert all(torch.isfinite(value) for value in found.values())
    updated = output.state.columns["text_temperature"][[0, 1, 2, 4]]
    assert found["text.temperature.q50"] == pytest.approx(float(torch.quantile(updated, 0.5)))


def test_a_global_temperature_that_is_not_finite_is_kept() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5, temperature_scope="global"))
    shared = SampleState(
        {"temperature": torch.tensor([0.07]), "momentum": torch.tensor([math.nan])}, torch.tensor([4])
    )
    output, *_ = evaluate(loss, *unit_pairs(5), shared=shared)
    assert output.shared.columns["temperature"].tolist() == pytest.approx([0.07])
    assert output.shared.visits.tolist() == [4]
    unknown = SampleState({"temperature": torch.tensor([math.nan]), "momentum": torch.tensor([0.1])}, shared.visits)
    output, *_ = evaluate(loss, *unit_pairs(5), shared=unknown)
    assert output.shared.columns["momentum"].tolist() == pytest.approx([0.1])
    assert output.shared.visits.tolist() == [4]


class TestTypicalStart:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5, temperature_init=0.3, temperature_start="typical"))

    def test_only_new_samples_start_there(self) -> None:
        typical = SampleState(
            {"image_temperature": torch.tensor([0.05]), "text_temperature": torch.tensor([0.07])}, torch.tensor([9])
        )
        state = visited(self.loss, 4, temperature=0.2, log_mean=-1.0)
        state.visits[1] = 0
        used = self.loss._temperatures(state, typical)
        assert used[0].tolist() == pytest.approx([0.2, 0.05, 0.2, 0.2])
        assert used[1].tolist() == pytest.approx([0.2, 0.07, 0.2, 0.2])
        first = self.loss._temperatures(self.loss.initial_state(4), self.loss.initial_shared())
        assert first[0].tolist() == pytest.approx([0.3] * 4)

    def test_rows_that_are_not_finite_do_not_count(self) -> None:
        state = visited(self.loss, 5, temperature=0.07, log_mean=-1.0, momentum=0.2)
        state.columns["text_momentum"][3] = math.nan
        output, *_ = evaluate(self.loss, *unit_pairs(5), state=state, shared=self.loss.initial_shared())
        for direction in ("image", "text"):
            kept = output.state.columns[f"{direction}_temperature"][[0, 1, 2, 4]]
            assert output.shared.columns[f"{direction}_temperature"].item() == pytest.approx(
                kept.log().mean().exp()
            )
        assert output.shared.visits.tolist() == [1]

    def test_a_batch_without_negatives_changes_nothing(self) -> None:
        shared = self.loss.initial_shared()
        output, *_ = evaluate(self.loss, *unit_pairs(4), rows=torch.full((4,), 2), shared=shared)
        assert output.shared.visits.tolist() == [0]
        assert all(torch.equal(output.shared.columns[name], value) for name, value in shared.columns.items())

    def test_refused_with_a_global_temperature(self) -> None:
        with pytest.raises(ConfigError, match="temperature_start is 'typical', but must be fixed with a global"):
            ISogCLRConfig.preset("paper", temperature_start="typical", temperature_scope="global")


def test_statistics() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=0.5, temperature_init=0.05))
    state = visited(loss, 4, temperature=0.07, log_mean=-1.0, momentum=0.2)
    state.visits[0] = 0
    output, *_ = evaluate(loss, *unit_pairs(4), state=state)
    found = loss.statistics(output)
    new = output.state.columns
    assert found["first_visits"] == 0.25
    assert found["image.temperature.mean"] == pytest.approx(float(new["image_temperature"].mean()))
    for quantile in (0.05, 0.5, 0.95):
        expected = float(torch.quantile(new["text_temperature"], quantile))
        assert found[f"text.temperature.q{round(100 * quantile):02d}"] == pytest.approx(expected)
    gradient = output.details["image_gradient"]
    assert gradient.min() < 0
    assert found["image.temperature.gradient"] == pytest.approx(float(gradient.abs().mean()))
    assert found["image.log_mean.mean"] == pytest.approx(float(new["image_log_mean"].mean()))
    used = torch.tensor([0.05, 0.07, 0.07, 0.07], dtype=torch.float64)
    both = sum(objective.robust_objective(used, new[f"{d}_log_mean"], 0.5).mean() for d in ("image", "text"))
    assert found["objective"] == pytest.approx(float(both))
    assert all(value.ndim == 0 and not value.requires_grad for value in found.values())


def test_statistics_see_the_bounds() -> None:
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=50.0, temperature_init=0.005))
    with pytest.warns(RhoWarning):
        output, *_ = evaluate(loss, *unit_pairs(4))
    assert loss.statistics(output)["image.temperature.at_minimum"] == 1
    assert loss.statistics(output)["image.temperature.at_maximum"] == 0


def test_cyclip_has_no_state() -> None:
    output, *_ = evaluate(CyCLIPLoss(), *unit_pairs(4))
    assert output.state is None


def test_state_table_takes_and_puts() -> None:
    table = SampleState.zeros(["a"], 5)
    rows = torch.tensor([3, 1, 3])
    table.put(rows, SampleState({"a": torch.tensor([1.0, 2.0, 3.0])}, torch.tensor([7, 8, 9])))
    assert table.columns["a"].tolist() == [0, 2, 0, 1, 0]
    assert table.take(torch.tensor([3, 0])).visits.tolist() == [7, 0]
    assert len(table) == 5
