"""What a training step asks of a model, whatever it looks at: pictures and captions, two views of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Features(NamedTuple):
    """What a forward pass gives."""

    first: Tensor  # [B, D], of the first input of each sample
    second: Tensor  # [B, D], of the second
    scalars: dict[str, Tensor]  # parameters that losses take: `logit_scale`, `logit_bias`


class TrainedModel(Protocol):
    """A model while it is trained. Its inputs are as many tensors as a batch has."""

    @property
    def input_dtype(self) -> torch.dtype | None:
        """Of floating-point inputs; None leaves them as they are."""
        ...

    def features(self, inputs: Sequence[Tensor]) -> Features:
        """A forward pass, as training calls it."""
        ...

    def train(self) -> None:
        """Training mode, before an epoch."""
        ...

    def without_sync(self) -> AbstractContextManager[None]:
        """A backward pass in here does not reduce gradients: all but the last micro-batch of a step."""
        ...

    def after_step(self) -> None:
        """Keep parameters within their bounds."""
        ...
