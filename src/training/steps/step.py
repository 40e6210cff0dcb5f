"""One optimizer step: forward, loss, backward; with accumulation over micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isogclr.losses import ContrastiveLoss, LossOutput, SampleState
from training.model import Model
from training.randomness import Replay
from training.steps.optimization import Optimization

ReadState = Callable[[], SampleState]  # called once, after the first forward pass: see `StateTable`


@dataclass(frozen=True)
class MicroBatch:
    """Images and texts on the device."""

    images: Tensor
    texts: Tensor


@dataclass(frozen=True)
class StepResult:
    """What a step has computed; tensors are detached and on the device."""

    output: LossOutput
    before: SampleState
    logit_scale: Tensor


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
        model: Model,
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
        batches: Sequence[MicroBatch],
        rows: Tensor,
        read_state: ReadState,
        shared: SampleState | None,
        schedule_step: float,
    ) -> StepResult:
        """Gradients of one step. `rows` are those of all micro-batches, one after another."""
        if len(batches) == 1:
            return self._whole(batches[0], rows, read_state, shared, schedule_step)
        return self._accumulated(batches, rows, read_state, shared, schedule_step)

    def _whole(
        self,
        batch: MicroBatch,
        rows: Tensor,
        read_state: ReadState,
        shared: SampleState | None,
        schedule_step: float,
    ) -> StepResult:
        with self._autocast():
            features = self._model.called(batch.images, batch.texts)
            before = read_state()
            output = self._evaluate(features, rows, before, shared, schedule_step)
        self._optimization.backward(output.loss)
        return StepResult(output, before, features["logit_scale"].detach())

    def _accumulated(
        self,
        batches: Sequence[MicroBatch],
        rows: Tensor,
        read_state: ReadState,
        shared: SampleState | None,
        schedule_step: float,
    ) -> StepResult:
        """The gradient of the whole batch, with the activations of one micro-batch at a time.

        Features first, without gradients; one call of the loss gives their gradients; a second forward pass of each
        micro-batch, with the same random numbers, takes them to the parameters.
        """
        states, parts = [], []
        with torch.no_grad(), self._autocast():
            for batch in batches:
                states.append(Replay(batch.images.device))
                parts.append(self._model.called(batch.images, batch.texts))
        whole = _joined(parts)
        before = read_state()
        with self._autocast():
            output = self._evaluate(whole, rows, before, shared, schedule_step)
        self._optimization.backward(output.loss)
        first = 0
        for number, (batch, state) in enumerate(zip(batches, states, strict=True)):
            is_last = number == len(batches) - 1
            state.restore()
            with nullcontext() if is_last else self._model.without_sync():
                with self._autocast():
                    features = self._model.called(batch.images, batch.texts)
                _feed_back(features, whole, slice(first, first + len(batch.images)), is_last)
            first += len(batch.images)
        return StepResult(output, before, whole["logit_scale"].detach())

    def _evaluate(
        self,
        features: dict[str, Tensor],
        rows: Tensor,
        before: SampleState,
        shared: SampleState | None,
        schedule_step: float,
    ) -> LossOutput:
        output: LossOutput = self._loss(
            features["image_features"],
            features["text_features"],
            logit_scale=features["logit_scale"],
            logit_bias=features.get("logit_bias"),
            rows=rows,
            state=before,
            shared=shared,
            step=schedule_step,
        )
        return output


def _joined(parts: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Features of all micro-batches as one batch, and the scalars, as leaves of a new graph."""
    scalars = {name: value for name, value in parts[0].items() if name in ("logit_scale", "logit_bias")}
    features = {name: torch.cat([part[name] for part in parts]) for name in ("image_features", "text_features")}
    return {name: value.detach().requires_grad_() for name, value in {**features, **scalars}.items()}


def _feed_back(features: dict[str, Tensor], whole: dict[str, Tensor], part: slice, is_last: bool) -> None:
    """Backward through one micro-batch, from the gradients of its part of the whole batch.

    The scalars are the same in all micro-batches: the last one carries their gradient, the others zeros, so that
    DDP sees every parameter in every backward pass.
    """
    outputs, gradients = [], []
    for name, leaf in whole.items():
        if not features[name].requires_grad:
            continue
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        if name in ("logit_scale", "logit_bias"):
            gradient = gradient if is_last else torch.zeros_like(gradient)
        else:
            gradient = gradient[part]
        outputs.append(features[name])
        gradients.append(gradient.to(features[name].dtype))
    torch.autograd.backward(outputs, gradients)
