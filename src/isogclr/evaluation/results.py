"""One JSON file per result, in clip_benchmark's schema, for `clip_benchmark build` to read; also the cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from isogclr.durable import make_directory, replace_file
from isogclr.errors import InputError
from isogclr.evaluation.data_folders import Located

_RECIPE_OF_CHECKPOINT = ("loss", "loss_config", "model", "model_config", "pretrained", "step", "epoch")
_RECIPE_OF_VIEWS = (
    "backbone",
    "stem",
    "projector",
    "image_size",
    "imbalance",
)  # beside those, of training.unimodal
_RECIPE_OF_RUN = ("train_data", "dataset_type", "batch_size", "accumulation", "world_size", "epochs")
_RECIPE_SETTINGS = ("model", "optimizer", "loss")
_MEASURED_BY = {"clip_benchmark": "clip-benchmark", "open_clip": "open_clip_torch"}  # packages, by our short names
FORMAT = 1  # to be raised whenever the same model would measure differently


@dataclass(frozen=True)
class Identity:
    """What a checkpoint says about itself; None where it says nothing."""

    model: str
    loss: str | None = None
    pretrained: bool | None = None  # whether encoders started from pretrained weights
    seed: int | None = None
    epoch: float | None = None
    recipe: str | None = None  # everything but the seed: runs with equal recipes are repetitions of each other


@dataclass(frozen=True)
class Result:
    """Metrics of one checkpoint on one data set, as fractions."""

    dataset: str
    task: str
    checkpoint: str
    identity: Identity
    images: int
    comparable: bool
    metrics: dict[str, float] = field(default_factory=dict)


def identity_of(
    model: str, details: Mapping[str, Any], epoch: int | None, run: Mapping[str, Any] | None
) -> Identity:
    """From the checkpoint's own part, and from the configuration of its run: without both there is no recipe."""
    known = run is not None and bool(details)
    recipe = {name: details.get(name) for name in _RECIPE_OF_CHECKPOINT}
    if details.get("kind") == "unimodal":
        recipe |= {name: details.get(name) for name in _RECIPE_OF_VIEWS}
    recipe |= {name: (run or {}).get(name) for name in _RECIPE_OF_RUN}
    recipe |= {name: (run or {}).get("settings", {}).get(name) for name in _RECIPE_SETTINGS}
    return Identity(
        model=model,
        loss=details.get("loss"),
        pretrained=details.get("pretrained"),
        seed=details.get("seed"),
        epoch=details.get("epoch", epoch),
        recipe=_digest({**recipe, "name": model}) if known else None,
    )


def run_configuration(checkpoint: Path) -> dict[str, Any] | None:
    """RUN/config.json of RUN/checkpoints/FILE, if it is there."""
    path = checkpoint.parent.parent / "config.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and isinstance(content.get("settings", {}), dict) else None


def cache_key(
    checkpoint_hash: str,
    model: str | None,
    located: Located,
    precision: str,
    packages: Mapping[str, str] = MappingProxyType(_MEASURED_BY),
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Equal keys, equal result: content of the checkpoint, data, precision, settings, the code that measures."""
    return _digest(
        {
            "format": FORMAT,
            **{name: version(package) for name, package in packages.items()},
            **settings,
            "checkpoint": checkpoint_hash,
            "model": model,
            "dataset": located.benchmark_name,
            "data": located.stamp,
            "precision": precision,
        }
    )


def result_path(folder: Path, checkpoint: Path, located: Located, key: str) -> Path:
    """The key keeps every `epoch_30.pt` apart; the rest of the name is for people."""
    run = checkpoint.parent.parent if checkpoint.parent.name == "checkpoints" else checkpoint.parent
    parts = (located.dataset.name, run.resolve().name, checkpoint.stem, key[:16])
    return folder / ("_".join(re.sub(r"[^\w.-]", "-", part) for part in parts) + ".json")


def find_cached(folder: Path, checkpoint: Path, located: Located, key: str) -> Result | None:
    """Under any name: the checkpoint may have moved since. A file that can not be read is measured again."""
    for path in sorted(folder.glob(f"{located.dataset.name}_*_{key[:16]}.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            ours = content["isogclr"]
            if ours["key"] != key:
                continue
            return Result(
                dataset=located.dataset.name,
                task=content["task"],
                checkpoint=str(checkpoint),
                identity=Identity(**ours["identity"]),
                images=ours["images"],
                comparable=ours["comparable"],
                metrics={name: float(value) for name, value in content["metrics"].items()},
            )
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def save_result(
    path: Path,
    result: Result,
    located: Located,
    key: str,
    precision: str,
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write one file; the part `isogclr` is more than clip_benchmark writes, `facts` are more of it."""
    content = {
        "dataset": located.benchmark_name,
        "model": result.identity.model,
        "pretrained": result.checkpoint,
        "task": result.task,
        "metrics": result.metrics,
        "language": "en",
        "isogclr": {
            "key": key,
            "identity": asdict(result.identity),
            "images": result.images,
            "comparable": result.comparable,
            "precision": precision,
            "data": str(located.folder),
            **facts,
        },
    }
    text = json.dumps(content, indent=2, allow_nan=False) + "\n"
    replace_file(path, [text.encode()])


def make_results_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a folder for results was expected")
    make_directory(folder)


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
