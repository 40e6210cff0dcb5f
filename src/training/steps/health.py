"""Whether training is still sound: loss and gradients that are not finite, counted without asking the device.

A step writes its verdict into a tensor, which travels with the exchange of its state (`store.state_table`), so all
ranks know it at the same moment: one step later, when that exchange is settled. What a gradient scaler leaves out
is no bad step, as long as the loss itself is finite: the scale was too large, and is halved.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.store.state_table import Settled


@torch.no_grad()
def is_bad(loss: Tensor, gradient_norm: Tensor | None, is_scaler_lost: bool) -> Tensor:
    """Whether a step was not finite, on the device.

    Args:
        loss: of this rank, not scaled.
        gradient_norm: None where a scaler has looked at the gradients itself.
        is_scaler_lost: whether it has left out more steps in a row than any scale explains.
    """
    bad = ~torch.isfinite(loss)
    if gradient_norm is not None:
        bad = bad | ~torch.isfinite(gradient_norm)
    return bad | is_scaler_lost


@dataclass
class Health:
    """How many steps in a row were bad, and what was found in the weights; the same on all ranks.

    Steps are counted as commits count them: after the first one, 1 is done.

    Args:
        limit: `--max-bad-steps`.
        bad_in_a_row: up to now.
        last_finite: the last step that was not bad; None if there was none since the start of this process.
        loss: of the newest step, the mean over the ranks.
        broken: names of what was not finite when somebody last looked at weights, buffers and optimizer.
        broken_since: the step at which that was first seen.
    """

    limit: int
    bad_in_a_row: int = 0
    last_finite: int | None = None
    loss: float = 0.0
    broken: tuple[str, ...] = ()
    broken_since: int | None = None
    _newest: int = 0

    def add(self, settled: Settled) -> None:
        """A step whose exchange is through."""
        self._newest, self.loss = settled.step + 1, settled.loss
        if settled.is_bad:
            self.bad_in_a_row += 1
        else:
            self.bad_in_a_row, self.last_finite = 0, self._newest

    def looked(self, step: int, broken: tuple[str, ...]) -> bool:
        """Somebody has looked at the weights after this step. Says whether they have just become broken."""
        is_news = bool(broken) and not self.broken
        self.broken = broken
        if not broken:
            self.broken_since = None
        elif is_news:
            self.broken_since = step
        return is_news

    @property
    def first_bad(self) -> int | None:
        """The first of the bad steps in a row."""
        return self._newest - self.bad_in_a_row + 1 if self.bad_in_a_row else None

    @property
    def is_over(self) -> bool:
        """Too many bad steps in a row."""
        return self.bad_in_a_row >= self.limit

    def is_time_to_look(self, step: int) -> bool:
        """Weights were broken as many steps ago as may be bad, though the loss is finite: are they still?"""
        return self.broken_since is not None and step - self.broken_since >= self.limit
