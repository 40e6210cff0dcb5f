"""The gradients of one optimizer step: forward, loss, backward; with accumulation over micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isogclr.losses import ContrastiveLoss, LossOutput, SampleState
from training.features import Features, TrainedModel
from training.randomness import Replay
from training.steps.optimization import Optimization

Inputs = Sequence[Tensor]  # of a micro-batch, on the device
ReadState = Callable[[], SampleState]  # called once, after the first forward pass: see `store.state_table`


@dataclass(frozen=True)
class StepResult:
    """What a step has computed; tensors are detached and on the device."""

    output: LossOutput
    before: SampleState
    scalars: dict[str, Tensor]  # of the model


@dataclass(frozen=True)
class _Arguments:
    """What the loss is called with beside features."""

    rows: Tensor
    read_state: ReadState
    shared: SampleState | None
    schedule_step: float


class Stepper:
    """Runs the model and the loss over one step and leaves the gradients in the parameters.

    Args:
        model: to train.
        loss: any of the registry.
        optimization: knows how to scale a loss.
        autocast: context of the model's precision.
    """

    def __init__(
        self,
        model: TrainedModel,
        loss: ContrastiveLoss,
        optimization: Optimization,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self._model = model
        self._loss = loss
        self._optimization = optimization
        self._autocast = autocast

    def run(
        self,
        batches: Sequence[Inputs],
        rows: Tensor,
        read_state: ReadState,
        shared: SampleState | None,
        schedule_step: float,
    ) -> StepResult:
        """Gradients of one step. `rows` are those of all micro-batches, one after another."""
        arguments = _Arguments(rows, read_state, shared, schedule_step)
        if len(batches) > 1:
            return self._accumulated(batches, arguments)
        with self._autocast():
            features = self._model.features(batches[0])
            before = read_state()
            output = self._evaluate(features, before, arguments)
        self._optimization.backward(output.loss)
        return StepResult(output, before, _detached(features.scalars))

    def _accumulated(self, batches: Sequence[Inputs], arguments: _Arguments) -> StepResult:
        """The gradient of the whole batch, with the activations of one micro-batch at a time.

        Features first, without gradients; one call of the loss gives their gradients; a second forward pass of each
        micro-batch, with the same random numbers, takes them to the parameters.
        """
        replays, parts = [], []
        with torch.no_grad(), self._autocast():
            for inputs in batches:
                replays.append(Replay(inputs[0].device))
                parts.append(self._model.features(inputs))
        whole = _joined(parts)
        before = arguments.read_state()
        with self._autocast():
            output = self._evaluate(whole, before, arguments)
        self._optimization.backward(output.loss)
        start = 0
        for number, (inputs, replay) in enumerate(zip(batches, replays, strict=True)):
            is_last = number == len(batches) - 1
            replay.restore()
            with nullcontext() if is_last else self._model.without_sync():
                with self._autocast():
                    features = self._model.features(inputs)
                _feed_back(features, whole, slice(start, start + len(inputs[0])), is_last)
            start += len(inputs[0])
        return StepResult(output, before, _detached(whole.scalars))

    def _evaluate(self, features: Features, before: SampleState, arguments: _Arguments) -> LossOutput:
        output: LossOutput = self._loss(
            features.first,
            features.second,
            logit_scale=features.scalars.get("logit_scale"),
            logit_bias=features.scalars.get("logit_bias"),
            rows=arguments.rows,
            state=before,
            shared=arguments.shared,
            step=arguments.schedule_step,
        )
        return output


def _detached(scalars: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in scalars.items()}


def _joined(parts: Sequence[Features]) -> Features:
    """Features of all micro-batches as one batch, and the scalars, as leaves of a new graph."""

    def leaf(value: Tensor) -> Tensor:
        return value.detach().requires_grad_()

    return Features(
        leaf(torch.cat([part.first for part in parts])),
        leaf(torch.cat([part.second for part in parts])),
        {name: leaf(value) for name, value in parts[0].scalars.items()},
    )


def _feed_back(features: Features, whole: Features, part: slice, is_last: bool) -> None:
    """Backward through one micro-batch, from the gradients of its part of the whole batch.

    The scalars are the same in all micro-batches: the last one carries their gradient, the others zeros, so that
    DDP sees every parameter in every backward pass.
    """
    outputs, gradients = [], []

    def add(output: Tensor, gradient: Tensor) -> None:
        if output.requires_grad:
            outputs.append(output)
            gradients.append(gradient.to(output.dtype))

    for output, leaf in ((features.first, whole.first), (features.second, whole.second)):
        add(output, _gradient(leaf)[part])
    for name, leaf in whole.scalars.items():
        gradient = _gradient(leaf)
        add(features.scalars[name], gradient if is_last else torch.zeros_like(gradient))
    torch.autograd.backward(outputs, gradients)


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
