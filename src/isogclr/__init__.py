"""CLIP with a learned temperature for every sample: iSogCLR for open_clip."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isogclr.config import CyCLIPConfig, ISogCLRConfig, SogCLRConfig
    from isogclr.losses import (
        CyCLIPLoss,
        ISogCLRLoss,
        LossOutput,
        RhoWarning,
        SampleState,
        SogCLRLoss,
        loss_class,
    )

__version__ = "0.1.0"

# Looked up when asked for, so that the parts without torch (state, report) import without it.
_HOMES = {
    "CyCLIPConfig": "isogclr.config",
    "ISogCLRConfig": "isogclr.config",
    "SogCLRConfig": "isogclr.config",
    "CyCLIPLoss": "isogclr.losses",
    "ISogCLRLoss": "isogclr.losses",
    "LossOutput": "isogclr.losses",
    "RhoWarning": "isogclr.losses",
    "SampleState": "isogclr.losses",
    "SogCLRLoss": "isogclr.losses",
    "loss_class": "isogclr.losses",
}

__all__ = [
    "CyCLIPConfig",
    "CyCLIPLoss",
    "ISogCLRConfig",
    "ISogCLRLoss",
    "LossOutput",
    "RhoWarning",
    "SampleState",
    "SogCLRConfig",
    "SogCLRLoss",
    "loss_class",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'isogclr' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)
