"""Trainings in memory: Flickr8k and icons behind frozen encoders, icons from scratch; batches, lengths, trials.

Trials on the validation part, with one seed, as many for each method: twelve on Flickr8k with 128 pairs, four
everywhere else, where runs are long or many. Every method is tried with two weight decays, and whatever has γ with
memory and without it. Beside them, as they come: `--loss isogclr`, and the recipe
of the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from grid import DataSet, Flags, Method, Run, settings

TASKS = ("features", "icons")
FLICKR_BATCHES, FLICKR_EPOCHS = (128, 32, 512), (15, 40)
ICON_PAIRS, ICON_BATCHES, ICON_EPOCHS = {"50k": 50_000, "all": None}, (64, 256), 10
LOG_RULE: Flags = {
    "isogclr_temperature_optimizer": "log",
    "isogclr_normalized_weights": True,
    "isogclr_carry_mean": True,
    "isogclr_temperature_init": 0.05,
}
DEFAULT_DECAY = 0.1
AS_THEY_COME = ("recommended", "paper")
KNOB_SEEDS = {"flickr8k-b128-e15": (100, 101, 102), "icons-50k-b64": (100,)}
PAPER_RULE: Flags = {"isogclr_temperature_rate": 0.001, "isogclr_temperature_init": 0.05}


def data_sets() -> dict[str, DataSet]:
    """In the order in which they are studied."""
    flickr = [
        DataSet(f"flickr8k-b{batch}-e{epochs}", "flickr8k-frozen", "features", flags)
        for epochs in FLICKR_EPOCHS
        for batch in FLICKR_BATCHES
        for flags in ({"batch_size": batch, "epochs": epochs},)
    ]
    icons = [
        DataSet(f"icons-{name}-b{batch}", "icons", "icons", _icon_flags(pairs, batch))
        for name, pairs in ICON_PAIRS.items()
        for batch in ICON_BATCHES
    ]
    frozen = DataSet("icons-frozen-b128", "icons-frozen", "features", {"batch_size": 128, "epochs": 15})
    return {one.name: one for one in (*flickr, *icons, frozen)}


def _icon_flags(pairs: int | None, batch: int) -> Flags:
    return {"batch_size": batch, "epochs": ICON_EPOCHS, "pairs": pairs}


def methods(data_set: DataSet) -> dict[str, Method]:
    """By name; `isogclr` has the paper's rule for τ, `isogclr-log` ours.

    Learning rates are for 128 pairs, and grow with the root of the batch.
    """
    scale = (data_set.flags["batch_size"] / 128) ** 0.5
    rates = tuple(round(rate * scale, 6) for rate in (0.0005, 0.001, 0.002, 0.004))
    grid = GRIDS.get(data_set.name, _scratch_grid if data_set.task == "icons" else _small_frozen_grid)(rates)
    with_decay = partial(_with_decay, other=grid.decays[-1])
    knobs = {"isogclr_rho": (grid.rho,), "isogclr_gamma": grid.gammas}
    trials: dict[str, tuple[Mapping[str, Any], ...]] = {
        "clip": settings(lr=grid.clip_rates, wd=grid.decays),
        "siglip": settings(lr=grid.siglip_rates, wd=grid.decays),
        "cyclip": with_decay(
            {"lr": lr, "cyclip_in_modal_weight": weight, "cyclip_cross_modal_weight": weight}
            for lr in grid.rates
            for weight in grid.weights
        ),
        "sogclr": with_decay(
            settings(lr=grid.rates, sogclr_temperature=(grid.temperature,), sogclr_gamma=grid.gammas)
        ),
        "isogclr": with_decay({**PAPER_RULE, **one} for one in settings(lr=grid.rates, **knobs)),
        "isogclr-log": with_decay({**LOG_RULE, **one} for one in settings(lr=grid.rates, **knobs)),
    }
    trials |= {f"isogclr-{preset}": ({"isogclr_preset": preset},) for preset in AS_THEY_COME}
    return {name: Method(name, name.split("-")[0], found) for name, found in trials.items()}


@dataclass(frozen=True)
class Grid:
    """What the trials are made of; as many for each method. CLIP and SigLIP have no knob, and more rates."""

    clip_rates: tuple[float, ...]
    siglip_rates: tuple[float, ...]
    decays: tuple[float, ...]  # of these two; the others are tried with the first and the last
    rates: tuple[float, ...]  # of the others
    weights: tuple[float, ...]  # of CyCLIP
    gammas: tuple[float, ...]
    rho: float
    temperature: float  # of SogCLR


def _frozen_grid(rates: tuple[float, ...]) -> Grid:
    weights, gammas = (0.01, 0.05, 0.25), (0.5, 0.8, 1.0)
    return Grid(rates, rates, (DEFAULT_DECAY, 0.3, 1.0), rates[1:3], weights, gammas, rho=3.0, temperature=0.03)


def _small_frozen_grid(rates: tuple[float, ...]) -> Grid:
    """Around what was best with 128 pairs."""
    weights, gammas = (0.01, 0.05), (0.8, 1.0)
    return Grid(rates[:2], rates[2:], (DEFAULT_DECAY, 0.3), rates[2:3], weights, gammas, rho=3.0, temperature=0.03)


def _scratch_grid(rates: tuple[float, ...]) -> Grid:
    middle = rates[1:3]
    return Grid(
        middle, middle, (DEFAULT_DECAY, 1.0), rates[2:3], (0.05, 0.25), (0.8, 1.0), rho=2.0, temperature=0.07
    )


GRIDS = {"flickr8k-b128-e15": _frozen_grid}


def _with_decay(trials: Iterable[Flags], other: float) -> tuple[Flags, ...]:
    """With the default decay, which goes without saying, and with another one."""
    return tuple(found for one in trials for found in (one, {**one, "wd": other}))


def knobs(data_set: DataSet, chosen: Mapping[str, Flags]) -> Iterator[Run]:
    """One temperature for all and one for each, over the knob of either; rate, decay and γ are SogCLR's for both.

    On the validation part, with several seeds: trials have one value of the knob, and one seed.
    """
    common = chosen["sogclr"]
    shared = {name: common[name] for name in ("lr", "wd") if name in common}
    gamma, centre = common["sogclr_gamma"], common["sogclr_temperature"]
    runs = [
        *(
            ("sogclr", {"sogclr_gamma": gamma, "sogclr_temperature": round(centre * by, 4)})
            for by in (2 / 3, 1, 1.5)
        ),
        *(
            ("isogclr-log", {**LOG_RULE, "isogclr_gamma": gamma, "isogclr_rho": rho})
            for rho in (1.0, 2.0, 3.0, 4.0)
        ),
    ]
    for seed in KNOB_SEEDS.get(data_set.name, ()):
        for method, setting in runs:
            found = {**shared, **setting}
            yield Run("knob", data_set, method, method.split("-")[0], found, seed, "validation")
