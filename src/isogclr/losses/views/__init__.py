"""The losses of two views of each picture, by name.

Reading order:

    stateless.py     the common course of those without state: checks, evaluation, gradients
    contrast.py      one softmax over the negatives of each anchor, through the tiled kernel
    simclr.py        NT-Xent; flatclr.py and tau_simclr.py weigh anchors and negatives otherwise
    simco.py         the same with two temperatures
    spectral.py      squares in place of a softmax
    whole_batch.py   statistics of the global batch, for
    barlow_twins.py  correlations, and
    vicreg.py        variances and covariances; with two directions a loss of images and texts

SogCLR and iSogCLR are those of images and texts, with one direction.
"""

from __future__ import annotations

from isogclr.errors import InputError
from isogclr.losses.base import ContrastiveLoss
from isogclr.losses.isogclr import ISogCLRLoss
from isogclr.losses.sogclr import SogCLRLoss
from isogclr.losses.views.barlow_twins import BarlowTwinsLoss
from isogclr.losses.views.flatclr import FlatCLRLoss
from isogclr.losses.views.simclr import SimCLRLoss
from isogclr.losses.views.simco import SimCoLoss
from isogclr.losses.views.spectral import SpectralLoss
from isogclr.losses.views.stateless import VIEW_DIRECTIONS
from isogclr.losses.views.tau_simclr import TauSimCLRLoss
from isogclr.losses.views.vicreg import VICRegLoss

VIEW_LOSSES: dict[str, type[ContrastiveLoss]] = {
    loss.name: loss
    for loss in (
        SimCLRLoss,
        SogCLRLoss,
        ISogCLRLoss,
        BarlowTwinsLoss,
        VICRegLoss,
        FlatCLRLoss,
        SpectralLoss,
        SimCoLoss,
        TauSimCLRLoss,
    )
}


def view_loss_class(name: str) -> type[ContrastiveLoss]:
    """The loss of this name, exactly; to be created with `directions=VIEW_DIRECTIONS`."""
    if name not in VIEW_LOSSES:
        raise InputError(f"there is no loss of two views {name!r}; choose one of {', '.join(VIEW_LOSSES)}")
    return VIEW_LOSSES[name]


__all__ = [
    "VIEW_DIRECTIONS",
    "VIEW_LOSSES",
    "BarlowTwinsLoss",
    "FlatCLRLoss",
    "SimCLRLoss",
    "SimCoLoss",
    "SpectralLoss",
    "TauSimCLRLoss",
    "VICRegLoss",
    "view_loss_class",
]
