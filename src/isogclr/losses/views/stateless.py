"""The common course of the losses of two views that keep no state: checks, evaluation, gradients."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from isogclr.config import check_kind
from isogclr.distributed import Ranks
from isogclr.errors import InputError
from isogclr.losses import kernel
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState, keep_in_graph
from isogclr.losses.inputs import check_features, check_rows

VIEW_DIRECTIONS: tuple[str, ...] = ("image",)  # both views are anchors of the same kind
_ROWS_PER_RANK = 1 << 40  # more than any rank has


class Evaluation(NamedTuple):
    """A value on this rank and W times the gradients of the global one (DDP averages), [b, D] each."""

    value: Tensor
    first: Tensor | None
    second: Tensor | None


class StatelessViewLoss(ContrastiveLoss):
    """Base: a subclass names its `config_class` and evaluates.

    Samples are known by `rows`: the same picture twice in a global batch is not its own negative. Without rows
    every pair is a sample of its own.

    Args:
        config: of the loss's own class; None for the defaults.
        ranks: the processes that share a batch; None takes those of the default group at the first call.
        directions: kept for names in the log; one for two views of the same pictures.
    """

    directions = VIEW_DIRECTIONS
    config: Any  # a LossConfig with `validate`; each subclass says which

    def __init__(
        self,
        config: Any = None,
        ranks: Ranks | None = None,
        directions: tuple[str, ...] = VIEW_DIRECTIONS,
    ) -> None:
        super().__init__()
        if len(directions) not in (1, 2):
            raise InputError(f"directions are {directions}, but must be one name or two")
        config_class = cast(type, self.config_class)
        self.config = config_class() if config is None else config
        check_kind(self.config, config_class)
        self.ranks = ranks
        self.directions = directions

    @abstractmethod
    def _evaluate(
        self, ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, differentiable: bool
    ) -> Evaluation:
        """The loss on the pairs of all ranks, without autograd; gradients if they are asked for."""

    def forward(
        self,
        first: Tensor,
        second: Tensor,
        *,
        logit_scale: Tensor | None = None,
        logit_bias: Tensor | None = None,
        rows: Tensor | None = None,
        state: SampleState | None = None,
        shared: SampleState | None = None,
        step: float = 0,
    ) -> LossOutput:
        """See `ContrastiveLoss.forward`; state and steps change nothing."""
        check_features(
            first,
            second,
            self.directions,
            values=self.config.validate,
            unit_length=self.unit_features,
            extra_columns=self.extra_outputs,
        )
        if self.ranks is None:
            self.ranks = Ranks()
        if rows is None:
            rows = torch.arange(first.shape[0], device=first.device) + self.ranks.rank * _ROWS_PER_RANK
        else:
            rows = check_rows(rows, first.shape[0], values=self.config.validate).to(first.device, non_blocking=True)
        differentiable = torch.is_grad_enabled() and (first.requires_grad or second.requires_grad)
        with torch.no_grad(), kernel.exact_products(first.device.type):
            value, *found = self._evaluate(self.ranks, first.detach(), second.detach(), rows, differentiable)
        own = [gradient[: first.shape[0]] for gradient in found if gradient is not None]
        if len(own) == len(found):
            value = kernel.attach_gradients(value, [first, second], own)
        return LossOutput(keep_in_graph(value, logit_scale, logit_bias))
