"""The new state of a step, from all ranks to all ranks: packed as int32 words, so that one gather takes all of it.

    row (2 words) | visits (1) | the columns (C words in float32, 2 C in float64)        one line per sample

so 4 · (C + 3) bytes per sample and rank in float32: 36 for iSogCLR. Lines stand in order of rank and position, and
of a row that occurs more than once the first line counts, as in `SampleState.put` and in the store.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from isogclr.distributed import Ranks
from isogclr.errors import InputError
from isogclr.losses.base import SampleState

_HEADER_WORDS = 3  # row, row, visits


@torch.no_grad()
def pack(rows: Tensor, state: SampleState, columns: Sequence[str], dtype: torch.dtype = torch.float32) -> Tensor:
    """Int32 words on the device of the state, [b, 3 + C]; the columns in the given order, not in the state's."""
    values = [state.columns[name].to(dtype).contiguous().view(torch.int32) for name in columns]
    words = [value.reshape(-1, dtype.itemsize // 4) for value in values]
    addresses = rows.contiguous().view(torch.int32).reshape(-1, 2).to(state.visits.device, non_blocking=True)
    return torch.cat([addresses, state.visits.to(torch.int32)[:, None], *words], dim=1)


@torch.no_grad()
def unpack(lines: Tensor, columns: Sequence[str], dtype: torch.dtype = torch.float32) -> tuple[Tensor, SampleState]:
    """Rows and state from what `pack` has made."""
    # Copies, not `contiguous`: that takes the part of a single line as it is, and 8 bytes may not begin there.
    rows = lines[:, :2].clone(memory_format=torch.contiguous_format).view(torch.int64).flatten()
    values = lines[:, _HEADER_WORDS:].clone(memory_format=torch.contiguous_format).view(dtype)  # [b, C]
    state = dict(zip(columns, values.unbind(dim=1), strict=True))
    return rows, SampleState(state, lines[:, 2].to(torch.int64))


@torch.no_grad()
def gather_updates(ranks: Ranks, rows: Tensor, state: SampleState | None) -> tuple[Tensor, SampleState]:
    """What every rank must store after a step, so that all of them hold the same state.

    Args:
        ranks: those of the loss (`loss.ranks` after its first call).
        rows: of the local pairs, as given to the loss, [b].
        state: of the loss's output.

    Returns:
        Rows of all ranks, [W · b], −1 where a smaller batch was filled up, and their state: arguments for
        `SampleState.put`.
    """
    if state is None:
        raise InputError("state is None, but only a loss with state_columns has something to exchange")
    columns = tuple(state.columns)
    dtype = state.columns[columns[0]].dtype
    lines = pack(rows, state, columns, dtype)
    missing = ranks.capacity(len(state), lines.device) - len(state)
    filled = pad(lines, (0, 0, 0, missing), value=-1)  # two words of −1 are the row −1
    return unpack(ranks.gather(filled), columns, dtype)
