"""Between the loss and the store: rows out, new rows in, on all ranks.

A step reads the state of its own samples, and its new state goes to every rank with one gather, packed as
`isogclr.exchange` does; one line more per rank says whether its step was not finite, and its loss: all ranks know
these in the same step. `last_epoch` is the same for all and is not sent.

The gather runs on a group of its own while the next forward pass computes; its result is written to the store
before the next state is read, so a sample that comes twice in a row is never stale.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from isogclr.distributed import PendingGather, Ranks
from isogclr.exchange import pack, unpack
from isogclr.losses import LossOutput, SampleState
from isogclr.state import RowStore
from isogclr.state.schema import Schema, Values


@dataclass(frozen=True)
class Settled:
    """What all ranks know of a step once its exchange is through."""

    step: int
    is_bad: bool  # on any rank
    loss: float  # the mean over the ranks


class StateTable:
    """The state of all samples, as a training step sees it.

    Args:
        store: of this node, open in this process.
        ranks: on a group of their own.
        device: of the model.
    """

    def __init__(self, store: RowStore, ranks: Ranks, device: torch.device) -> None:
        self.store = store
        self.ranks = ranks
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._pending: _PendingUpdate | None = None
        self._settled: Settled | None = None
        self.wait_seconds = 0.0  # that steps have waited for the exchange, beyond what the forward pass hides

    def read(self, rows: Tensor) -> SampleState:
        """The state of these samples, with every step that was taken."""
        self.settle()
        return to_state(self.store.read(rows.numpy()), self.store.schema, self._device)

    def send(
        self,
        rows: Tensor,
        state: SampleState,
        *,
        step: int,
        epoch: int,
        taken: bool,
        bad: Tensor,
        loss: Tensor,
    ) -> None:
        """Start to give all ranks the new state of a step, which counts only if the step was taken.

        Args:
            bad: whether the step was not finite on this rank; on the device, and nobody waits for it.
            loss: of this rank.
        """
        assert self._pending is None
        lines = pack(rows, state, self.store.schema.state_columns)
        last = lines.new_zeros(1, lines.shape[1])  # one line more, of the rank itself
        last[0, 0] = bad
        last[0, 1] = loss.detach().to(torch.float32).view(torch.int32)
        gather = self.ranks.gather_later(torch.cat([lines, last]))
        self._pending = _PendingUpdate(_ToHost(gather, self._stream), step, epoch, taken)

    def settle(self) -> None:
        """Write what is under way to the store."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        start = time.monotonic()
        words = pending.words.wait()
        self.wait_seconds += time.monotonic() - start
        by_rank = words.view(self.ranks.size, -1, words.shape[1])  # [W, b + 1, C + 3]
        if pending.taken:
            rows, state = unpack(by_rank[:, :-1].flatten(0, 1), self.store.schema.state_columns)
            self.store.write(rows.numpy(), to_values(state, self.store.schema, pending.epoch), pending.step)
        told = by_rank[:, -1]  # [W, C + 3]
        losses = told[:, 1].clone().view(torch.float32)
        self._settled = Settled(pending.step, bool(told[:, 0].any()), float(losses.mean()))

    def take_settled(self) -> Settled | None:
        """What was learned of the last step, once."""
        settled, self._settled = self._settled, None
        return settled


class _ToHost:
    """The result of a gather on its way to main memory.

    On a GPU the copy starts at once, on a stream of its own, behind the step that made the state and before the
    next forward pass: waiting for it later does not wait for that pass.
    """

    def __init__(self, gather: PendingGather, stream: torch.cuda.Stream | None) -> None:
        self._gather = gather
        self._copied: torch.cuda.Event | None = None
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
            with torch.cuda.stream(stream):
                packed = gather.wait()
                self._host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
                self._host.copy_(packed, non_blocking=True)
                self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._copied.record(stream)

    def wait(self) -> Tensor:
        if self._copied is None:
            return self._gather.wait()
        self._copied.synchronize()
        return self._host


@dataclass(frozen=True)
class _PendingUpdate:
    words: _ToHost
    step: int
    epoch: int
    taken: bool


def to_state(values: Values, schema: Schema, device: torch.device) -> SampleState:
    """Rows of the store as tensors on the device: one copy of all columns, which does not wait."""
    columns = len(schema.state_columns)
    words = torch.from_numpy(values.view(np.int32).reshape(len(values), columns + 2))
    if device.type == "cuda":
        words = words.pin_memory()
    words = words.to(device, non_blocking=True)
    floats = words[:, :columns].contiguous().view(torch.float32)
    named = {name: floats[:, column] for column, name in enumerate(schema.state_columns)}
    return SampleState(named, words[:, columns].to(torch.int64))


def to_values(state: SampleState, schema: Schema, epoch: int) -> Values:
    """State in main memory as rows of the store that were last visited in this epoch."""
    values = schema.zeros(len(state))
    for name in schema.state_columns:
        values[name] = state.columns[name].numpy()
    values["visits"] = state.visits.numpy()
    values["last_epoch"] = epoch + 1
    return values


def new_state(output: LossOutput, before: SampleState) -> SampleState:
    """What a step has made of the state. A loss without state of its own counts visits."""
    return SampleState({}, before.visits + 1) if output.state is None else output.state
