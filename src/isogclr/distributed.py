"""The processes that share a batch. The only importer of torch.distributed."""

from __future__ import annotations

import gc
import json
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from isogclr.errors import InputError

_FAILURE_KEY, _KNOWN_KEY, _STOP_KEY = "isogclr/failure", "isogclr/failure-known", "isogclr/stop"
_TURN = timedelta(seconds=1)


class PendingGather:
    """A gather that is under way; `wait` gives its result."""

    def __init__(self, everyone: Tensor, own: Tensor, work: dist.Work | None) -> None:
        self._everyone = everyone
        self._own = own  # the collective reads it until it is done
        self._work = work

    def wait(self) -> Tensor:
        if self._work is not None:
            self._work.wait()
        return self._everyone

    def wait_awake(self) -> Tensor:
        """`wait` in turns of a second: handlers of signals run in between, never inside a collective."""
        while self._work is not None:
            try:
                self._work.wait(_TURN)
                break
            except RuntimeError:  # its turn is over, and the gather goes on; or it has failed
                if self._work.is_completed():
                    break
        return self.wait()


class Ranks:
    """The ranks of a process group, or one process alone. Counts the bytes it receives from other ranks.

    Collectives carry no gradient and return the same on all ranks.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        distributed = _is_distributed()
        self._group = group
        self.rank: int = dist.get_rank(group) if distributed else 0
        self.size: int = dist.get_world_size(group) if distributed else 1
        self.bytes_received = 0
        self._capacity: int | None = None

    @torch.no_grad()
    def gather(self, own: Tensor) -> Tensor:
        """The tensors of all ranks, one after another along the first dimension. They must be of equal shape."""
        if self.size == 1:
            return own
        own = own.contiguous()
        everyone = own.new_empty(self.size * own.shape[0], *own.shape[1:])
        dist.all_gather_into_tensor(everyone, own, group=self._group)
        self.bytes_received += (self.size - 1) * own.numel() * own.element_size()
        return everyone

    @torch.no_grad()
    def gather_later(self, own: Tensor) -> PendingGather:
        """`gather` without waiting for it. Every rank must call it in the same order as all other collectives."""
        if self.size == 1:
            return PendingGather(own, own, None)
        own = own.contiguous()
        everyone = own.new_empty(self.size * own.shape[0], *own.shape[1:])
        work = dist.all_gather_into_tensor(everyone, own, group=self._group, async_op=True)
        self.bytes_received += (self.size - 1) * own.numel() * own.element_size()
        return PendingGather(everyone, own, work)

    def gather_awake(self, own: Tensor) -> Tensor:
        """`gather` on gloo, for as long as it takes: handlers of signals run meanwhile."""
        return self.gather_later(own).wait_awake()

    @torch.no_grad()
    def sum(self, own: Tensor) -> Tensor:
        """The sum over all ranks."""
        if self.size == 1:
            return own
        total = own.clone()
        dist.all_reduce(total, group=self._group)
        self.bytes_received += 2 * (self.size - 1) * own.numel() * own.element_size() // self.size
        return total

    def capacity(self, batch: int, device: torch.device) -> int:
        """Pairs that every rank sends in a gather: the largest batch of the first call.

        A gather needs equal shapes, and nobody knows the batch of another rank without asking. So the ranks ask
        once; a smaller batch is padded, and only a larger one than any in the first call is refused. The refusal
        is this rank's alone: the others wait in their gather until its process ends, or until the group's timeout.
        """
        if self.size == 1:
            return batch
        if self._capacity is None:
            sizes = self.gather(torch.tensor([batch], device=device))
            self._capacity = int(sizes.max())  # synchronises, once per run
        if batch > self._capacity:
            raise InputError(
                f"rank {self.rank} has a batch of {batch}, but the largest of any rank in the first step was "
                f"{self._capacity}: give every rank its largest batch first, or drop the uneven one (drop_last)"
            )
        return self._capacity

    def own_group(self, backend: str | None = None) -> Ranks:
        """The same ranks on a group of their own, so that its collectives need not keep to the order of others."""
        if self.size == 1:
            return Ranks()
        # Rank 0 may evaluate for hours while the others wait; a rank that fails is noticed by other means.
        timeout = timedelta(days=2) if backend == "gloo" else None
        return Ranks(dist.new_group(backend=backend, timeout=timeout))


class Messages:
    """Small values between ranks, as JSON, through main memory: for decisions that all ranks must share.

    Args:
        ranks: of a group that moves CPU tensors (gloo).
    """

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks

    @classmethod
    def of(cls, ranks: Ranks) -> Messages:
        """Messages on a gloo group of their own, whatever the ranks use for tensors."""
        return cls(ranks.own_group("gloo"))

    def gather(self, value: Any) -> list[Any]:
        """What every rank has given, by rank."""
        if self.ranks.size == 1:
            return [json.loads(json.dumps(value))]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        lengths = self.ranks.gather(torch.tensor([len(data)]))
        padded = torch.zeros(int(lengths.max()), dtype=torch.uint8)
        padded[: len(data)] = data
        rows = self.ranks.gather(padded).view(self.ranks.size, -1)
        return [
            json.loads(bytes(row[:length].tolist())) for row, length in zip(rows, lengths.tolist(), strict=True)
        ]

    def from_first(self, value: Any) -> Any:
        """What rank 0 has given; the others' values do not matter."""
        return self.gather(value if self.ranks.rank == 0 else None)[0]

    def barrier(self) -> None:
        """Return when every rank has called it."""
        self.gather(None)


class FailureBoard:
    """Where the first rank that fails says why, for all to read: the rendezvous store, kept by rank 0.

    A rank that was asked to stop says so here, too: others may wait for data meanwhile, and not for it.

    On a connection of its own, so that nobody who looks at it waits for a group that is being made.
    """

    def __init__(self) -> None:
        self._store: Any = None
        if _is_distributed():
            self._store = dist.distributed_c10d._get_default_store().clone()  # type: ignore[attr-defined]

    def report(self, cause: str) -> bool:
        """Whether this is the first failure of all; a later one is a consequence of it."""
        if self._store is None:
            return True
        return bytes(self._store.compare_set(_FAILURE_KEY, "", cause)).decode() == cause

    def first(self) -> str | None:
        """The first failure, if there is one. Raises RuntimeError when the process that keeps the board is gone."""
        if self._store is None or not self._store.check([_FAILURE_KEY]):
            return None
        return bytes(self._store.get(_FAILURE_KEY)).decode()

    def acknowledge(self) -> None:
        """This rank knows of the failure."""
        if self._store is not None:
            self._store.add(_KNOWN_KEY, 1)

    def acknowledged(self) -> int:
        """How many ranks know of it."""
        return 0 if self._store is None else int(self._store.add(_KNOWN_KEY, 0))

    def ask_to_stop(self) -> None:
        """Somebody has asked this rank: all should."""
        if self._store is not None:
            self._store.set(_STOP_KEY, "")

    def is_asked_to_stop(self) -> bool:
        """Whether some rank was asked. Raises RuntimeError as `first` does."""
        return self._store is not None and bool(self._store.check([_STOP_KEY]))


def is_lost_connection(error: BaseException) -> bool:
    """Whether a collective failed because another process is gone."""
    return isinstance(error, dist.DistBackendError | dist.DistNetworkError) or (
        isinstance(error, RuntimeError) and "gloo/transport" in str(error)
    )


def end_group() -> None:
    """Leave all process groups, if there are any, and end their threads.

    The threads live as long as the groups, and what refers to a group (a loss, DDP) is often part of a cycle. One
    that frees a tensor while the interpreter ends would take the process down.
    """
    if _is_distributed():
        dist.destroy_process_group()
        gc.collect()


def _is_distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
