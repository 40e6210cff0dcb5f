"""Trainings in memory: Flickr8k behind frozen encoders, icons from scratch; batches, lengths, trials.

Eight trials for each method on Flickr8k, and four on icons, where a run is five times as long; on the validation
part, with one seed. Every method is tried with both weight decays, and whatever has γ with memory and without it.
Beside them, as they come: `--loss isogclr`, and the recipe of the authors' code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grid import DataSet, Flags, Method, settings

TASKS = ("features", "icons")
FLICKR_BATCHES, FLICKR_EPOCHS = (128, 32, 512), (15, 40)
ICON_PAIRS, ICON_BATCHES, ICON_EPOCHS = {"50k": 50_000, "all": None}, (64, 256), 10
LOG_RULE: Flags = {
    "isogclr_temperature_optimizer": "log",
    "isogclr_normalized_weights": True,
    "isogclr_carry_mean": True,
    "isogclr_temperature_init": 0.05,
}
DECAYS = (0.1, 1.0)
AS_THEY_COME = ("recommended", "paper")
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
    return {one.name: one for one in (*flickr, *icons)}


def _icon_flags(pairs: int | None, batch: int) -> Flags:
    return {"batch_size": batch, "epochs": ICON_EPOCHS, "pairs": pairs}


def methods(data_set: DataSet) -> dict[str, Method]:
    """By name; `isogclr` has the paper's rule for τ, `isogclr-log` ours.

    Learning rates are for 128 pairs, and grow with the root of the batch.
    """
    scale = (data_set.flags["batch_size"] / 128) ** 0.5
    rates = tuple(round(rate * scale, 6) for rate in (0.0005, 0.001, 0.002, 0.004))
    if data_set.task == "features":
        all_rates, two, weights, rho, fixed = rates, rates[1:3], (0.01, 0.25), 3.0, 0.03
    else:
        all_rates, two, weights, rho, fixed = rates[1:3], rates[2:3], (0.05, 0.25), 2.0, 0.07
    knobs = {"isogclr_rho": (rho,), "isogclr_gamma": (0.8, 1.0)}
    trials: dict[str, tuple[Mapping[str, Any], ...]] = {
        "clip": settings(lr=all_rates, wd=DECAYS),
        "siglip": settings(lr=all_rates, wd=DECAYS),
        "cyclip": _with_decay(
            {"lr": lr, "cyclip_in_modal_weight": weight, "cyclip_cross_modal_weight": weight}
            for lr in two
            for weight in weights
        ),
        "sogclr": _with_decay(settings(lr=two, sogclr_temperature=(fixed,), sogclr_gamma=(0.8, 1.0))),
        "isogclr": _with_decay({**PAPER_RULE, **one} for one in settings(lr=two, **knobs)),
        "isogclr-log": _with_decay({**LOG_RULE, **one} for one in settings(lr=two, **knobs)),
    }
    trials |= {f"isogclr-{preset}": ({"isogclr_preset": preset},) for preset in AS_THEY_COME}
    return {name: Method(name, name.split("-")[0], found) for name, found in trials.items()}


def _with_decay(trials: Iterable[Flags]) -> tuple[Flags, ...]:
    """As they are (the first of the decays is the default), and with the other decay."""
    return tuple(found for one in trials for found in (one, {**one, "wd": DECAYS[1]}))
