"""One JSON file a result, in clip_benchmark's schema, for `clip_benchmark build` to read; also the cache."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isogclr.durable import make_directory, replace_file
from isogclr.errors import InputError
from isogclr.evaluation.layout import Located

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


def identity_of(model: str, details: dict[str, Any], epoch: int | None) -> Identity:
    """From the checkpoint's own part. Without `loss_config` two runs may differ in it: no recipe then."""
    recipe = {name: value for name, value in details.items() if name not in ("seed", "name")}
    known = "loss_config" in recipe
    return Identity(
        model=model,
        loss=details.get("loss"),
        pretrained=details.get("pretrained"),
        seed=details.get("seed"),
        epoch=details.get("epoch", epoch),
        recipe=_digest({**recipe, "model": model}) if known else None,
    )


def cache_key(checkpoint_hash: str, model: str | None, located: Located, precision: str) -> str:
    """Equal keys, equal result: content of the checkpoint, data, precision, and the code that measures."""
    return _digest(
        {
            "format": FORMAT,
            "clip_benchmark": version("clip-benchmark"),
            "open_clip": version("open_clip_torch"),
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


def save_result(path: Path, result: Result, located: Located, key: str, precision: str) -> None:
    """Write one file; the part `isogclr` is more than clip_benchmark writes."""
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
