"""CLIP with a learned temperature for every sample: iSogCLR for open_clip. The library.

Reading order:

    objective.py    the paper, equation by equation: the first file to read
    config.py       options of the losses; schedules.py: quantities that change over a run
    losses/         the losses and their kernel
    exchange.py     the new state of a step, from all ranks to all ranks
    distributed.py  collectives, messages, failures: the only importer of torch.distributed
    shard_index/    (shard, key) → row; csv_table.py: tables of images and captions
    pictures/       labelled pictures by row; packed_texts.py: many strings in one array
    state/          row → state: the store, its snapshots, joint commits
    durable.py      files that appear completely or not at all; spreadsheet.py: cells of those that are CSV
    models/         model configurations, checkpoints, embeddings
    evaluation/     `isogclr eval`, `isogclr linear`
    report/         `isogclr report`
    demo.py         `isogclr demo`, on the emoji of demo_data/
    cli.py          the command `isogclr`; cli_evaluation.py: those of its parts that measure and hand on models
                    progress_bars.py: bars on a terminal, lines in a log
    errors.py       every exception
"""

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
