"""What makes a run one program's and not another's: its command line, its model, its data, what it measures.

`training.main` and `training.unimodal` are two of them. Everything else, from the folder of a run to its last
commit, is the same story (`run.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import nn

from isogclr.distributed import Messages, Ranks
from isogclr.losses import ContrastiveLoss
from isogclr.shard_index import ShardIndex
from training.data.epoch import TrainData
from training.features import TrainedModel
from training.folder import RunFolder
from training.open_clip_bridge import Place
from training.ranks.node import Node
from training.settings import ProgramSettings
from training.signals import StopRequest
from training.steps.metric_log import MetricLog


class RunModel(TrainedModel, Protocol):
    """A model that a run trains, describes and commits."""

    @property
    def bare(self) -> nn.Module:
        """Without DDP and compilation, for the log."""
        ...

    @property
    def stored(self) -> nn.Module:
        """Whose state a checkpoint holds, and whose parameters are trained."""
        ...


class Evaluation(Protocol):
    """What is measured after an epoch, on the first rank, while the others wait."""

    def run(self, epoch: int, last_epoch: int, metrics: MetricLog) -> dict[str, float]:
        """Metrics after this many epochs, written to log and TensorBoard. Training draws the same random numbers as
        without."""
        ...


@dataclass(frozen=True)
class Opened:
    """Training data, and what a checkpoint is to say about it."""

    data: TrainData
    facts: Mapping[str, Any] = field(default_factory=dict)


class Program(ABC):
    """A program while it runs. `run.py` calls the methods in the order in which they stand here.

    Attributes:
        command: as its users call it, for messages.
        kind: what its checkpoints say they are; None for pictures and captions, as they always were.
        settings: what the command line says.
        meets_by_environment: whether ranks find each other by MASTER_ADDR and MASTER_PORT.
        evaluates: whether something is measured after an epoch; the same on all ranks.
        evaluates_first: whether a new run is measured before its first step, too.
    """

    command: str
    kind: str | None = None
    settings: ProgramSettings
    meets_by_environment: bool = True
    evaluates: bool
    evaluates_first: bool = False

    @classmethod
    @abstractmethod
    def parse(cls, argv: Sequence[str]) -> Program:
        """From a command line. Every problem is reported together, as a `ConfigError`."""

    @abstractmethod
    def start_device(self) -> Place:
        """Join the process group, if the environment names one, and choose the device."""

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """All flags by name, as they stand in params.txt."""

    def place_run(self, folder: RunFolder) -> None:  # noqa: B027 (most have nothing to do here)
        """The folder of the run is there."""

    def go_back(self) -> None:
        """The run has diverged, and goes on from its newest commit: everything that follows is called again."""
        self.settings = self.settings.resumed()

    @abstractmethod
    def create_model(self, folder: RunFolder, place: Place, messages: Messages) -> RunModel:
        """The model on its device, the same on all ranks."""

    @abstractmethod
    def open_evaluation(self, folder: RunFolder, place: Place) -> Evaluation | None:
        """What measures the model, on the first rank. Says now what is missing, not after the first epoch."""

    def start_remote_sync(self, run: Path) -> Callable[[], None] | None:
        """Copy the run elsewhere from time to time; returns what ends it. None if nobody asked for it."""
        return None

    @abstractmethod
    def open_index(self, path: Path, messages: Messages, node: Node) -> ShardIndex | None:
        """The rows of the training data, on every rank; None for data without identity."""

    @abstractmethod
    def open_data(self, index: ShardIndex | None, folder: RunFolder, place: Place) -> Opened:
        """The training data of this rank. What is wrong with it is wrong on all ranks."""

    @abstractmethod
    def create_loss(self, ranks: Ranks, steps_per_epoch: int) -> ContrastiveLoss:
        """The loss, with schedules that know the length of the run."""

    @abstractmethod
    def facts(self, loss: ContrastiveLoss) -> dict[str, Any]:
        """What a checkpoint says about itself: plain values, so that it loads without running code."""


@dataclass(frozen=True)
class Context:
    """What every part of a run needs to know about it.

    `failed` tells the other ranks of an error before this one cleans up: closing a store or a logger may take long.
    """

    program: Program
    place: Place
    ranks: Ranks
    messages: Messages
    stop: StopRequest
    failed: Callable[[BaseException], None]

    @property
    def settings(self) -> ProgramSettings:
        return self.program.settings
