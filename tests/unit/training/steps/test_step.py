"""Accumulation with dropout, and a gradient scaler that leaves steps out."""

from __future__ import annotations

import contextlib

import pytest
import torch

from isogclr import ISogCLRConfig, ISogCLRLoss
from isogclr.losses import ContrastiveLoss, SampleState
from support.micro_run import write_model
from training import params
from training.model import Model, create_model
from training.open_clip_bridge import Place
from training.steps.optimization import Optimization
from training.steps.step import Inputs, Stepper

CPU = Place(torch.device("cpu"), 0, 0, 1)
ROWS = torch.arange(12)


@pytest.fixture(scope="module")
def name(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"), dropout=0.3)


def settings_for(name: str, *flags: str) -> tuple[params.Settings, Model]:
    settings, _ = params.parse(["--model", name, "--train-data", "x.tar", "--precision", "fp32", *flags])
    model = create_model(settings.model, CPU, seed=0)
    model.called.train()
    return settings, model


def micro_batches() -> list[Inputs]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(12, 3, 16, 16, generator=generator)
    texts = torch.randint(5, 17, (12, 8), generator=generator)
    return [(images[first : first + 4], texts[first : first + 4]) for first in (0, 4, 8)]


def isogclr() -> ContrastiveLoss:
    return ISogCLRLoss(ISogCLRConfig.preset("paper", rho=1.0, temperature_init=0.1))


def test_accumulation_replays_dropout(name: str) -> None:
    """The gradient is that of one graph over the features of the first forward passes, with their dropout masks."""
    settings, model = settings_for(name)
    loss, batches = isogclr(), micro_batches()
    state = loss.initial_state(12)
    optimization = Optimization(model.wrapped, settings.optimizer, "fp32", CPU.device)
    torch.manual_seed(5)
    parts = [model.called(*inputs) for inputs in batches]
    image, text = (torch.cat([part[key] for part in parts]) for key in ("image_features", "text_features"))
    after = torch.get_rng_state()
    value = loss(image, text, logit_scale=parts[0]["logit_scale"], rows=ROWS, state=state).loss
    value.backward()
    expected = {key: parameter.grad.clone() for key, parameter in model.bare.named_parameters()}
    optimization.optimizer.zero_grad()
    torch.manual_seed(5)
    stepper = Stepper(model, loss, optimization, contextlib.nullcontext)
    result = stepper.run(batches, ROWS, lambda: state, None, 0)
    torch.testing.assert_close(result.output.loss, value)
    for key, parameter in model.bare.named_parameters():
        torch.testing.assert_close(
            parameter.grad, expected[key], rtol=1e-4, atol=1e-7, msg=lambda m, k=key: f"{k}: {m}"
        )
    assert torch.equal(torch.get_rng_state(), after)  # as if there had been one forward pass


def test_the_scaler_leaves_out_a_step_with_infinite_gradients(name: str) -> None:
    settings, model = settings_for(name)
    optimization = Optimization(model.wrapped, settings.optimizer, "amp", CPU.device)
    before = {key: value.clone() for key, value in model.bare.state_dict().items()}
    parameter = next(model.bare.parameters())
    optimization.optimizer.zero_grad()
    optimization.backward((parameter * float("inf")).sum())
    assert not optimization.step()
    assert all(torch.equal(value, before[key]) for key, value in model.bare.state_dict().items())
    optimization.optimizer.zero_grad()
    optimization.backward(parameter.sum())
    assert optimization.step()


def test_locked_towers_get_no_gradient(name: str) -> None:
    settings, model = settings_for(name, "--lock-image")
    loss, batches = isogclr(), micro_batches()
    optimization = Optimization(model.wrapped, settings.optimizer, "fp32", CPU.device)
    stepper = Stepper(model, loss, optimization, contextlib.nullcontext)
    state: SampleState = loss.initial_state(12)
    for micro in (batches, batches[:1]):
        count = sum(len(inputs[0]) for inputs in micro)
        stepper.run(micro, ROWS[:count], lambda count=count: state.take(ROWS[:count]), None, 0)
    assert all(parameter.grad is None for parameter in model.bare.visual.parameters())
    assert any(parameter.grad is not None for parameter in model.bare.text.parameters())


@pytest.mark.parametrize("optimizer", ["adamw", "timm/lamb", "timm/lookahead_adamw", "timm/sgd"])
@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_every_optimizer_says_that_it_stepped(name: str, optimizer: str, precision: str) -> None:
    """timm's Lookahead is no optimizer to torch, whose hooks it never runs: state would never be written."""
    settings, model = settings_for(name, "--opt", optimizer, "--lr", "0.1", "--eps", "1e-8")
    optimization = Optimization(model.wrapped, settings.optimizer, precision, CPU.device)
    optimization.optimizer.zero_grad()
    optimization.backward(next(model.bare.parameters()).sum())
    assert optimization.step()
