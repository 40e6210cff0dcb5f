"""The losses of two views of each picture, by name.

Reading order:

    stateless.py     the common course of those without state: checks, evaluation, gradients
    contrast.py      one softmax over the negatives of each anchor, through the tiled kernel
    simclr.py        NT-Xent

SogCLR and iSogCLR are those of pairs of image and text, with one direction.
"""

from __future__ import annotations

from isogclr.errors import InputError
from isogclr.losses.base import ContrastiveLoss
from isogclr.losses.isogclr import ISogCLRLoss
from isogclr.losses.sogclr import SogCLRLoss
from isogclr.losses.views.simclr import SimCLRLoss
from isogclr.losses.views.stateless import VIEW_DIRECTIONS

VIEW_LOSSES: dict[str, type[ContrastiveLoss]] = {loss.name: loss for loss in (SimCLRLoss, SogCLRLoss, ISogCLRLoss)}


def view_loss_class(name: str) -> type[ContrastiveLoss]:
    """The loss of this name, exactly; to be created with `directions=VIEW_DIRECTIONS`."""
    if name not in VIEW_LOSSES:
        raise InputError(f"there is no loss of two views {name!r}; choose one of {', '.join(VIEW_LOSSES)}")
    return VIEW_LOSSES[name]


__all__ = ["VIEW_DIRECTIONS", "VIEW_LOSSES", "SimCLRLoss", "view_loss_class"]
