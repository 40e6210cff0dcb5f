"""Two views: iSogCLR's step from features, in time and in extra memory, as ratios to lightly's NTXentLoss."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch
from lightly.loss import NTXentLoss
from torch.nn.functional import normalize

from benchmarks import measure
from isogclr.config import ISogCLRConfig, unimodal_defaults
from isogclr.losses import VIEW_DIRECTIONS, ContrastiveLoss, ISogCLRLoss
from isogclr.losses.views import SimCLRLoss

# Of SimCLR's projector, and of the paper's: dimension → views in a batch, two of each picture → repetitions
DIMENSIONS = {128: {256: 41, 1024: 21, 4096: 7}, 8192: {256: 15, 1024: 7, 4096: 3}}
BASELINE = "lightly NTXentLoss"


def contenders(views: int, dimension: int) -> dict[str, Callable[[], None]]:
    """Name → one forward and backward from leaf features of any length, which all of them normalise."""
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(views // 2, dimension, generator=generator)
    second = first + torch.randn(views // 2, dimension, generator=generator)
    rows = torch.arange(views // 2)
    original, isogclr = NTXentLoss(temperature=0.1), ISogCLRLoss(_recipe(), directions=VIEW_DIRECTIONS)
    simclr, state = SimCLRLoss(), isogclr.initial_state(views // 2)

    def leaves() -> tuple[torch.Tensor, torch.Tensor]:
        return first.clone().requires_grad_(), second.clone().requires_grad_()

    def unit() -> tuple[torch.Tensor, ...]:
        return tuple(normalize(leaf, dim=1) for leaf in leaves())

    def theirs() -> None:
        original(*leaves()).backward()  # it normalises itself

    def ours(loss: ContrastiveLoss) -> None:
        loss(*unit(), rows=rows, state=state).loss.backward()

    return {
        BASELINE: theirs,
        "isogclr": functools.partial(ours, isogclr),
        "simclr": functools.partial(ours, simclr),
    }


def _recipe() -> ISogCLRConfig:
    return ISogCLRConfig(**unimodal_defaults("isogclr"))


def run() -> dict:
    """About two minutes on two cores."""
    results: dict[str, Any] = {
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
    }
    for dimension, batches in DIMENSIONS.items():
        found: dict[str, Any] = {}
        for views, repetitions in batches.items():
            time_ratios = measure.ratios_to(BASELINE, contenders(views, dimension), repetitions)
            memory = {
                name: measure.peak_bytes(functools.partial(_prepared, views, dimension, name), preload=__name__)
                for name in time_ratios
            }
            found[str(views)] = {
                name: {
                    "time_ratio": ratio,
                    "extra_mib": memory[name] / 2**20,
                    "memory_ratio": memory[name] / memory[BASELINE],
                }
                for name, ratio in time_ratios.items()
            }
        results[str(dimension)] = found
    return results


def _prepared(views: int, dimension: int, name: str) -> Callable[[], None]:
    torch.set_num_threads(2)
    contenders(64, 16)[name]()
    return contenders(views, dimension)[name]


def table(results: dict) -> str:
    """Markdown."""
    lines = [
        "| dimension | views | loss | time, × NTXentLoss (median, range) | extra memory, × NTXentLoss |",
        "|---|---|---|---|---|",
    ]
    for dimension in DIMENSIONS:
        for views, by_name in results[str(dimension)].items():
            for name, found in by_name.items():
                ratio = found["time_ratio"]
                time = f"{ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f}, n={ratio['n']})"
                memory = f"{found['memory_ratio']:.2f} ({found['extra_mib']:.0f} MiB)"
                lines.append(f"| {dimension} | {views} | {name} | {time} | {memory} |")
    return "\n".join(lines)
