"""The losses, by name.

Reading order:

    base.py              the contract: features and state in, a value with gradients and new state out
    isogclr.py           iSogCLR; sogclr.py is the same with a fixed temperature
    moving_average.py    the common course of both: gather, statistics, moving average, gradients, new state
    kernel.py            softmax statistics and feature gradients in tiles of anchors
    pairs.py             the features of all ranks
    inputs.py            checks of what a loss is called with
    cyclip.py            CyCLIP
    open_clip_losses.py  open_clip's own, unchanged
    views/               the losses of two views of each picture, with a registry of their own
"""

from __future__ import annotations

from isogclr.errors import InputError
from isogclr.losses.base import ContrastiveLoss, LossOutput, SampleState
from isogclr.losses.cyclip import CyCLIPLoss
from isogclr.losses.isogclr import ISogCLRLoss, RhoWarning
from isogclr.losses.open_clip_losses import ClipLoss, SigLipLoss
from isogclr.losses.sogclr import SogCLRLoss
from isogclr.losses.views import VIEW_DIRECTIONS, VIEW_LOSSES, VICRegLoss, view_loss_class

LOSSES: dict[str, type[ContrastiveLoss]] = {
    loss.name: loss for loss in (ClipLoss, SigLipLoss, CyCLIPLoss, VICRegLoss, SogCLRLoss, ISogCLRLoss)
}


def loss_class(name: str) -> type[ContrastiveLoss]:
    """The loss of this name, exactly."""
    if name not in LOSSES:
        raise InputError(f"there is no loss {name!r}; choose one of {', '.join(LOSSES)}")
    return LOSSES[name]


__all__ = [
    "LOSSES",
    "VIEW_DIRECTIONS",
    "VIEW_LOSSES",
    "ClipLoss",
    "ContrastiveLoss",
    "CyCLIPLoss",
    "ISogCLRLoss",
    "LossOutput",
    "RhoWarning",
    "SampleState",
    "SigLipLoss",
    "SogCLRLoss",
    "VICRegLoss",
    "loss_class",
    "view_loss_class",
]
