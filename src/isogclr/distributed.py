"""The processes that share a batch. The only importer of torch.distributed."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from isogclr.errors import InputError


class Ranks:
    """The ranks of a process group, or one process alone. Counts the bytes it receives from other ranks.

    Collectives carry no gradient and return the same on all ranks.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        distributed = dist.is_available() and dist.is_initialized()
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
            self._capacity = int(sizes.max())  # synchronises, once a run
        if batch > self._capacity:
            raise InputError(
                f"rank {self.rank} has a batch of {batch}, but the largest of any rank in the first step was "
                f"{self._capacity}: give every rank its largest batch first, or drop the uneven one (drop_last)"
            )
        return self._capacity
