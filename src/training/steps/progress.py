"""Where a run is: what a commit keeps of it, and a resume finds again."""

from __future__ import annotations

from dataclasses import dataclass

from isogclr.losses import SampleState
from training.data.position import Position


@dataclass
class Progress:
    """Where a run is.

    Args:
        epoch: being trained, from 0.
        step: number of the next optimizer step, from 0; never goes back.
        done: how much of the epoch is over, in steps of the schedule. After a change of set-up in the middle of an
            epoch its steps are larger or smaller than 1, so that the schedule still ends with the epoch.
        steps_per_epoch: of the schedule.
        position: of this rank in the data of the epoch; None between epochs.
        shared: state that all samples share, for losses that have some.
    """

    epoch: int = 0
    step: int = 0
    done: float = 0.0
    steps_per_epoch: int = 0
    position: Position | None = None
    shared: SampleState | None = None

    @property
    def schedule_step(self) -> float:
        """Steps of the schedule that are over, for the learning rate and for γ."""
        return self.steps_per_epoch * self.epoch + self.done

    @property
    def fraction(self) -> float:
        """Of the epoch that is over."""
        return self.done / self.steps_per_epoch
