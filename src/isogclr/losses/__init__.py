"""The losses, by name."""

from __future__ import annotations

from isogclr.errors import UnknownLossError
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState
from isogclr.losses.cyclip import CyCLIPLoss
from isogclr.losses.isogclr import ISogCLRLoss, RhoWarning
from isogclr.losses.open_clip_losses import ClipLoss, SigLipLoss
from isogclr.losses.sogclr import SogCLRLoss

LOSSES: dict[str, type[ContrastiveLoss]] = {
    loss.name: loss for loss in (ClipLoss, SigLipLoss, CyCLIPLoss, SogCLRLoss, ISogCLRLoss)
}


def loss_class(name: str) -> type[ContrastiveLoss]:
    """The loss of this name, exactly."""
    if name not in LOSSES:
        raise UnknownLossError(f"there is no loss {name!r}; choose one of {', '.join(LOSSES)}")
    return LOSSES[name]


__all__ = [
    "LOSSES",
    "ClipLoss",
    "ContrastiveLoss",
    "CyCLIPLoss",
    "ISogCLRLoss",
    "LossOutput",
    "RhoWarning",
    "SampleState",
    "SigLipLoss",
    "SogCLRLoss",
    "loss_class",
]
