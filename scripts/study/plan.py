"""The study: which data sets, which methods, which questions; what it may cost.

About 8 CPU-hours in all, on 2 cores. Frozen encoders are cheap, so most questions are asked there; from scratch and
on long-tailed data methods are compared, and no ablations are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import memory_plan
import unimodal_plan
from grid import DataSet, Flags, Method, Run, settings

TUNING_SEED = 100
SEEDS = (0, 1, 2, 3, 4)
PRESET = "isogclr-recommended"
MODELS = Path(__file__).resolve().parent / "models"

DATA_SETS = {
    "emoji-frozen": DataSet(
        name="emoji-frozen",
        folder="emoji-frozen",
        task="retrieval",
        flags={
            "model": "local-dir:{folder}/model",
            "lock_text": True,
            "image_mean": (0.5, 0.5, 0.5),
            "image_std": (0.125, 0.125, 0.125),
            "aug_cfg": ("scale=(1,1)",),
            "batch_size": 128,
            "epochs": 12,
            "lr": 2e-3,
            "wd": 0.1,
            "warmup": 50,
        },
        fixed_pictures=True,
    ),
    **{
        name: DataSet(
            name=name,
            folder=folder,
            task=task,
            flags={
                "model": f"local-dir:{MODELS / 'small-resnet'}",
                "aug_cfg": ("scale=(1,1)",),
                "batch_size": 128,
                "epochs": epochs,
                "lr": 2e-3,
                "wd": 0.1,
                "warmup": 50,
            },
            fixed_pictures=True,
        )
        for name, folder, task, epochs in (
            ("emoji-scratch", "emoji-32", "retrieval", 6),
            ("cifar10-lt", "cifar10-lt", "zero-shot", 4),
            ("quickdraw-lt", "quickdraw-lt", "zero-shot", 4),
        )
    },
    **memory_plan.data_sets(),
    **unimodal_plan.data_sets(),
}

# The two rules for the temperatures: the paper's, and ours in log τ (docs/method.md).
PAPER_RULE: Flags = {"isogclr_gamma": 0.8}
NEW_RULE: Flags = {
    "isogclr_temperature_optimizer": "log",
    "isogclr_normalized_weights": True,
    "isogclr_carry_mean": True,
    "isogclr_temperature_init": 0.05,
}


def methods(data_set: DataSet) -> dict[str, Method]:
    """Six trials for each (three on QuickDraw-LT), and one for the preset, which is taken as it comes."""
    if data_set.task in memory_plan.TASKS:
        return memory_plan.methods(data_set)
    if data_set.task == unimodal_plan.TASK:
        return unimodal_plan.methods(data_set)
    lr = data_set.flags["lr"]
    find = {"emoji-frozen": _frozen_trials, "quickdraw-lt": _few_trials}.get(data_set.name, _scratch_trials)
    trials = {**find(lr), PRESET: ({"isogclr_preset": "recommended"},)}
    fixed = {"isogclr": PAPER_RULE, "isogclr-log": NEW_RULE}
    return {
        name: Method(name, name.split("-")[0], tuple(_flags({**fixed.get(name, {}), **one}) for one in found))
        for name, found in trials.items()
    }


def _frozen_trials(lr: float) -> dict[str, tuple[Flags, ...]]:
    return {
        "clip": settings(lr=(lr / 2, lr, 2 * lr), wd=(0.1, 1.0)),
        "cyclip": settings(lr=(lr, 2 * lr), cyclip_weight=(0.01, 0.05, 0.25)),
        "sogclr": settings(lr=(lr, 2 * lr), sogclr_temperature=(0.03, 0.05, 0.1), sogclr_gamma=(0.9,)),
        "isogclr": settings(lr=(lr, 2 * lr), isogclr_rho=(1.0, 2.0, 3.0), rule=((0.001, 0.05),)),
        "isogclr-log": settings(lr=(lr, 2 * lr), isogclr_rho=(1.0, 2.0, 3.0), isogclr_gamma=(0.9,)),
    }


def _scratch_trials(lr: float) -> dict[str, tuple[Flags, ...]]:
    """With memory and without: from scratch, and in few epochs, what it costs is more than the rest does."""
    weights, rates = (0.05, 0.25, 1.0), (lr / 2, lr, 2 * lr)
    return {
        "clip": (*settings(lr=rates), *settings(lr=rates, wd=(1.0,))),
        "cyclip": (*settings(cyclip_weight=weights), *settings(lr=(2 * lr,), cyclip_weight=weights)),
        "sogclr": settings(sogclr_temperature=(0.05, 0.1, 0.2), sogclr_gamma=(0.8, 1.0)),
        "isogclr": settings(isogclr_rho=(0.5, 1.0, 2.0), rule=((0.001, 0.05),), isogclr_gamma=(0.8, 1.0)),
        "isogclr-log": (
            *settings(isogclr_rho=(0.5, 1.0, 2.0, 3.0), isogclr_gamma=(1.0,)),
            *settings(isogclr_rho=(1.0, 2.0), isogclr_gamma=(0.9,)),
        ),
    }


def _few_trials(lr: float) -> dict[str, tuple[Flags, ...]]:
    """Three, one of them with memory."""
    paper = {"rule": (0.001, 0.05)}
    return {
        "clip": settings(lr=(lr / 2, lr, 2 * lr)),
        "cyclip": settings(cyclip_weight=(0.05, 0.25, 1.0)),
        "sogclr": (
            *settings(sogclr_temperature=(0.05, 0.1), sogclr_gamma=(1.0,)),
            *settings(sogclr_temperature=(0.1,), sogclr_gamma=(0.8,)),
        ),
        "isogclr": (
            *({**one, **paper} for one in settings(isogclr_rho=(0.5, 1.0), isogclr_gamma=(1.0,))),
            {"isogclr_rho": 1.0, "isogclr_gamma": 0.8, **paper},
        ),
        "isogclr-log": (
            *settings(isogclr_rho=(1.0, 2.0), isogclr_gamma=(1.0,)),
            *settings(isogclr_rho=(1.0,), isogclr_gamma=(0.9,)),
        ),
    }


def _flags(setting: Mapping[str, Any]) -> Flags:
    """`rule` stands for step and start of τ, which belong together; CyCLIP's two weights are tuned as one."""
    flags = dict(setting)
    if "rule" in flags:
        flags["isogclr_temperature_rate"], flags["isogclr_temperature_init"] = flags.pop("rule")
    if "cyclip_weight" in flags:
        flags["cyclip_in_modal_weight"] = flags["cyclip_cross_modal_weight"] = flags.pop("cyclip_weight")
    return flags


def tuning(data_set: DataSet, seed: int = TUNING_SEED) -> Iterator[Run]:
    """Every trial of every method, once, on the validation part."""
    for method in methods(data_set).values():
        for setting in method.trials:
            yield Run("tune", data_set, method.name, method.loss, setting, seed, "validation")


def comparison(data_set: DataSet, chosen: Mapping[str, Flags], seeds: tuple[int, ...] = SEEDS) -> Iterator[Run]:
    """The chosen setting of every method, on the test part."""
    of_method = methods(data_set)
    for seed in seeds if data_set.task != unimodal_plan.TASK else unimodal_plan.SEEDS:
        for name, setting in chosen.items():
            loss, curve = of_method[name].loss, seed == seeds[0]
            yield Run("compare", data_set, name, loss, setting, seed, "test", curve, semantics=True)


def without_memory(data_set: DataSet, chosen: Mapping[str, Flags]) -> Iterator[Run]:
    """The chosen settings with γ 1, on the test part: to stand beside the preset, which has no memory."""
    for seed in SEEDS:
        for name, knob in (("sogclr", "sogclr_gamma"), ("isogclr", "isogclr_gamma")):
            yield Run("no-memory", data_set, name, name, {**chosen[name], knob: 1.0}, seed, "test")


def less_data(data_set: DataSet, chosen: Mapping[str, Flags]) -> Iterator[Run]:
    """A quarter, a half and all of the training pairs, on the validation part: do ρ and γ depend on how many?"""
    changes: tuple[tuple[str, Flags], ...] = (
        ("clip", {}),
        *(("sogclr", {"sogclr_gamma": gamma}) for gamma in (0.8, 1.0)),
        *(("isogclr-log", {"isogclr_rho": rho, "isogclr_gamma": 1.0}) for rho in (1.0, 2.0, 3.0)),
    )
    for shards in (2, 4, 8):
        part = replace(data_set, name=f"{data_set.name}-{shards}-of-8", train_shards=shards)
        for method, change in changes:
            setting = {**chosen[method], **change}
            yield Run("less-data", part, method, method.split("-")[0], setting, TUNING_SEED, "validation")


def ablations(data_set: DataSet, chosen: Mapping[str, Flags]) -> Iterator[Run]:
    """One knob at a time around the chosen settings, on the validation part."""
    for part, method, changes in (*_starts(), *_radii(), *_batches(data_set, chosen), *_memory(), *_rules()):
        setting = {**chosen[method], **changes}
        yield Run(part, data_set, method, method.split("-", maxsplit=1)[0], setting, TUNING_SEED, "validation")


Change = tuple[str, str, Flags]  # part of the study, method, flags that differ from the chosen setting


def _starts() -> Iterator[Change]:
    for start in (0.01, 0.03, 0.1, 0.3):
        yield "start", "clip", {"init_temperature": start}
        yield "start", "sogclr", {"sogclr_temperature": start, "sogclr_gamma": 1.0}
        for method in ("isogclr", "isogclr-log"):
            yield "start", method, {"isogclr_temperature_init": start}
        free = {"isogclr_temperature_init": start, "isogclr_gamma": 1.0}
        yield "start-no-memory", "isogclr-log", free
        yield "start-newton", "isogclr-log", {"isogclr_temperature_rate": 1.0, **free}
        yield "start-typical", "isogclr-log", {"isogclr_temperature_start": "typical", **free}


def _radii() -> Iterator[Change]:
    for rho in (0.5, 1.0, 2.0, 3.0, 4.0, 6.0):
        for method in ("isogclr", "isogclr-log"):
            yield "rho", method, {"isogclr_rho": rho}


def _batches(data_set: DataSet, chosen: Mapping[str, Flags]) -> Iterator[Change]:
    """128 is everywhere else. Learning rates by the square root, as is usual for AdamW."""

    def sized(method: str, batch: int) -> Flags:
        lr = chosen[method].get("lr", data_set.flags["lr"])
        return {"batch_size": batch, "lr": round(lr * (batch / 128) ** 0.5, 6)}

    for batch in (32, 64, 256, 512):
        for method in ("clip", "sogclr", "isogclr", "isogclr-log"):
            yield "batch", method, sized(method, batch)
    for batch in (32, 512):
        for rho in (1.0, 3.0):
            yield "rho-batch", "isogclr-log", {"isogclr_rho": rho, **sized("isogclr-log", batch)}
        for gamma in (0.5, 0.8, 1.0):
            yield "memory-batch", "sogclr", {"sogclr_gamma": gamma, **sized("sogclr", batch)}


def _memory() -> Iterator[Change]:
    for gamma in (0.2, 0.5, 0.8, 0.95, 1.0):
        yield "gamma", "sogclr", {"sogclr_gamma": gamma}
        yield "gamma", "isogclr-log", {"isogclr_gamma": gamma}
    for epochs in (4, 24):
        for gamma in (0.5, 0.8, 1.0):
            yield "memory", "sogclr", {"sogclr_gamma": gamma, "epochs": epochs}


def _rules() -> Iterator[Change]:
    cosine = {"isogclr_gamma_schedule": "cosine"}
    for changes in (
        {"isogclr_temperature_rate": 0.03, "isogclr_temperature_init": 0.01},  # the recipe
        {"isogclr_normalized_weights": True},
        {"isogclr_temperature_optimizer": "adam", "isogclr_temperature_rate": 0.001},
        {"isogclr_temperature_scope": "global"},
        {"isogclr_gamma": 0.5, **cosine},
        {"isogclr_gamma": 1.0},
    ):
        yield "rule", "isogclr", changes
    for changes in (
        cosine,
        {"isogclr_temperature_scope": "global"},
        {"isogclr_temperature_start": "typical", **cosine},
        {"isogclr_gamma": 0.5, "isogclr_carry_mean": True},
        {"isogclr_gamma": 0.5, "isogclr_carry_mean": False},
    ):
        yield "rule", "isogclr-log", changes
