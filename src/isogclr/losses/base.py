"""What every loss is: features and state in, a value with gradients and new state out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from isogclr.config import LossConfig
from isogclr.errors import InputError
from isogclr.objective import first_occurrence


@dataclass(frozen=True)
class SampleState:
    """State of some samples, as a value: one tensor per column, one entry per sample.

    Zeros everywhere mean "never visited": what a loss starts from then is in its configuration.

    Args:
        columns: name → [B] floats. The names are those of the store (`image_temperature`, …).
        visits: how often each sample was updated, [B] int64.
    """

    columns: Mapping[str, Tensor]
    visits: Tensor

    @classmethod
    def zeros(
        cls,
        columns: Iterable[str],
        samples: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> SampleState:
        """State of samples that were never visited."""
        values = {name: torch.zeros(samples, device=device, dtype=dtype) for name in columns}
        return cls(values, torch.zeros(samples, device=device, dtype=torch.int64))

    def take(self, rows: Tensor) -> SampleState:
        """The state of the samples at `rows`, as a copy."""
        return SampleState({name: value[rows] for name, value in self.columns.items()}, self.visits[rows])

    def put(self, rows: Tensor, new: SampleState) -> None:
        """Overwrite the samples at `rows`, in place: for a table that fits into memory, such as a test's.

        Of a row that stands more than once, the first occurrence counts; a row below 0 is passed over.
        """
        missing = [name for name in self.columns if name not in new.columns]
        if missing:
            raise InputError(f"new lacks {', '.join(missing)}, but every column of the table must be written")
        rows = rows.to(self.visits.device)
        first = first_occurrence(rows)
        kept = rows[first]
        for name, value in self.columns.items():
            value[kept] = new.columns[name].to(value)[first]
        self.visits[kept] = new.visits.to(self.visits)[first]

    def to(self, device: torch.device | str) -> SampleState:
        """The same state on a device."""
        return SampleState({name: value.to(device) for name, value in self.columns.items()}, self.visits.to(device))

    def __len__(self) -> int:
        return self.visits.shape[0]


@dataclass(frozen=True)
class LossOutput:
    """What a step of a loss gives. All tensors but `loss` are detached.

    Args:
        loss: 0-dim, differentiable. Of W ranks, each reports the mean over its own anchors (a loss of statistics of
            the whole batch, such as VICReg: its value for the global batch).
        state: new state of the local samples; None for a loss without state. A sample without negatives, or whose
            update was not finite, has its old state. Of a sample that occurs more than once in the global batch,
            the first occurrence is to be stored, in order of rank and position.
        shared: new state that all samples share (a single row); None for a loss without.
        details: unreduced quantities by name, for `statistics`.
    """

    loss: Tensor
    state: SampleState | None = None
    shared: SampleState | None = None
    details: Mapping[str, Tensor] = field(default_factory=dict)


class ContrastiveLoss(nn.Module, ABC):
    """A loss over the features of positive pairs: image and text, or two views of a picture.

    Attributes:
        name: the name in the registry.
        config_class: what its constructor takes; None for a loss of open_clip, which takes keyword arguments.
        config: the frozen configuration; None for a loss of open_clip.
        directions: what an anchor can be, one name or two. Columns, details and statistics are named after them.
        state_columns: columns of `SampleState` that it keeps for each sample.
        shared_columns: columns of the state that all samples share.
        unit_features: whether it expects features of unit length, which the model then hands over.
        extra_outputs: columns of the features beyond these, which are what the model puts out.
        averages_over_ranks: whether the mean over ranks of what they report is the value of the global batch. Of
            open_clip's losses open_clip logs what the first rank reports.
    """

    name: str
    config_class: type[LossConfig] | None = None
    config: LossConfig | None = None
    directions: tuple[str, ...] = ("image", "text")
    state_columns: tuple[str, ...] = ()
    shared_columns: tuple[str, ...] = ()
    unit_features: bool = True
    extra_outputs: int = 0
    averages_over_ranks: bool = True

    @abstractmethod
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
        """Evaluate the loss on the local pairs, together with those of all other ranks.

        Args:
            first, second: features of the two inputs of each sample, [B, D] each: images and texts, or two views.
            logit_scale, logit_bias: the model's; a loss that does not use them keeps them in the graph.
            rows: position of each pair's sample in the state, [B] int64.
            state: of these samples.
            shared: of all samples together.
            step: optimizer steps taken so far, for schedules; a fraction after a change of set-up.
        """

    def described_options(self) -> dict[str, Any]:
        """What the loss was made with, as plain values for a checkpoint."""
        return {} if self.config is None else asdict(self.config)

    @property
    def temperature_bounds(self) -> tuple[float, float] | None:
        """What the learned temperatures lie between; None for a loss that learns none."""
        return None

    def initial_state(self, samples: int, **options: object) -> SampleState:
        """State of samples that were never visited; options as for `SampleState.zeros`."""
        return SampleState.zeros(self.state_columns, samples, **options)  # type: ignore[arg-type]

    def initial_shared(self, **options: object) -> SampleState | None:
        """Shared state before the first step; None for a loss without."""
        if not self.shared_columns:
            return None
        return SampleState.zeros(self.shared_columns, 1, **options)  # type: ignore[arg-type]

    def statistics(self, output: LossOutput) -> dict[str, Tensor]:
        """Quantities worth logging, by their names in the log, as 0-dim tensors on the device.

        Computed when asked, so that a step does not pay for them.
        """
        return {}


def keep_in_graph(loss: Tensor, *unused: Tensor | None) -> Tensor:
    """Add parameters that have no effect with weight 0: DistributedDataParallel waits for all gradients."""
    for parameter in unused:
        if parameter is not None and parameter.requires_grad:
            loss = loss + 0.0 * parameter.sum()
    return loss
