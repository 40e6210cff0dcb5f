"""The new state of a step, from all ranks to all ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from isogclr.distributed import Ranks
from isogclr.errors import InputError
from isogclr.losses.base import LossOutput, SampleState
from isogclr.losses.pairs import PADDING


@torch.no_grad()
def gather_updates(ranks: Ranks, rows: Tensor, output: LossOutput) -> tuple[Tensor, SampleState]:
    """What every rank must store after a step, so that all of them hold the same state.

    Args:
        ranks: those of the loss (`loss.ranks` after its first call).
        rows: of the local pairs, as given to the loss, [b].
        output: of the loss.

    Returns:
        Rows of all ranks, [W · b], below 0 where nothing is to be stored, and their state: arguments for
        `SampleState.put`.
    """
    if output.state is None or output.write is None:
        raise InputError("output has no state: only losses with state_columns have something to exchange")
    missing = ranks.capacity(len(output.state), rows.device) - len(output.state)
    columns = torch.stack([*output.state.columns.values()], dim=1)  # [b, C]
    rows = torch.where(output.write, rows.to(output.write.device), PADDING)
    everyone = ranks.gather(pad(columns, (0, 0, 0, missing)))
    state = SampleState(
        dict(zip(output.state.columns, everyone.unbind(dim=1), strict=True)),
        ranks.gather(pad(output.state.visits, (0, missing))),
    )
    return ranks.gather(pad(rows, (0, missing), value=PADDING)), state
