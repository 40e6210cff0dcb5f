"""A place in an epoch: what a checkpoint keeps to find it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple

from torch import Tensor

from isogclr.errors import DataError


class Batch(NamedTuple):
    """A batch and where its worker stood after it."""

    inputs: tuple[Tensor, ...]  # of the model, [B, …] each: images and texts, or two views of pictures
    rows: Tensor  # [B] int64, on the CPU
    worker: int
    drawn: int  # samples that this worker has drawn in this epoch, behind the shuffle, in front of the decoder


class Part(NamedTuple):
    """One data worker among all workers of all ranks."""

    rank: int
    world_size: int
    worker: int
    workers: int

    @property
    def number(self) -> int:
        return self.rank * self.workers + self.worker

    @property
    def parts(self) -> int:
        return self.world_size * self.workers


@dataclass(frozen=True)
class SetUp:
    """Everything that the order of samples depends on. `data` stands for the shards and what is in them."""

    world_size: int
    workers: int
    batch_size: int
    accumulation: int
    seed: int
    resampled: bool
    num_samples: int
    data: str

    def differences(self, other: SetUp) -> list[str]:
        """In words, for the log."""
        return [
            f"{field.name} {getattr(self, field.name)} → {getattr(other, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]


@dataclass(frozen=True)
class Position:
    """How far one rank has come in an epoch.

    Attributes:
        epoch: counted from 0.
        batches: micro-batches that were stepped.
        drawn: for each worker, the samples it had drawn when it gave the last of these.
        set_up: what the numbers above belong to.
        unseen: the epoch goes on after a change of set-up, so the numbers can not be replayed.
    """

    epoch: int
    batches: int
    drawn: tuple[int, ...]
    set_up: SetUp
    unseen: bool = False

    def after(self, batch: Batch) -> Position:
        """The position when this batch, the next one of its epoch, has been stepped."""
        drawn = (*self.drawn[: batch.worker], batch.drawn, *self.drawn[batch.worker + 1 :])
        return replace(self, batches=self.batches + 1, drawn=drawn)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "drawn": list(self.drawn)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Position:
        try:
            numbers = int(record["epoch"]), int(record["batches"]), tuple(int(count) for count in record["drawn"])
            return cls(*numbers, SetUp(**record["set_up"]), bool(record["unseen"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"the data position in the checkpoint is not one ({error!r}): it was written by another release; "
                "resume with the release that wrote it, or from the start of an epoch"
            ) from None
