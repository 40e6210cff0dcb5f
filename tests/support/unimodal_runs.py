"""Run directories of `training.unimodal` for tests of the report, made up and not trained.

The files are those of the trainer, written with the store and the index of the library; pictures have a colour per
class, which even random weights tell apart, and temperatures are whatever a test says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from isogclr.pictures import open_pictures, picture_shards
from isogclr.shard_index import ShardIndex
from isogclr.state import STORE_SNAPSHOT, StateStore, schema_for, write_generation

Floats = npt.NDArray[np.float64]
Temperatures = Callable[[npt.NDArray[np.int64]], Floats]  # from the class of each row
COLUMNS = ("image_temperature", "image_log_mean", "image_momentum")
BOUNDS = (0.05, 1.0)


def write_coloured(root: Path, sizes: Mapping[str, int]) -> Path:
    """A folder per class; the sizes of the classes are those given."""
    colours = np.random.default_rng(1).integers(30, 226, (len(sizes), 3))
    random = np.random.default_rng(0)
    for colour, (name, size) in zip(colours, sizes.items(), strict=True):
        (root / name).mkdir(parents=True)
        for number in range(size):
            shade = colour + random.normal(0, 14, 3)
            pixels = np.clip(shade + random.normal(0, 16, (16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number:03d}.png")
    return root


def long_tailed(classes: int, largest: int, imbalance: float) -> dict[str, int]:
    """Sizes of classes as the paper's long-tailed sets have them."""
    return {
        f"class k{one:02d}": int(largest * (1 / imbalance) ** (one / max(1, classes - 1))) for one in range(classes)
    }


def warmer_heads(labels: npt.NDArray[np.int64]) -> Floats:
    """The first class is the hottest, the last the coldest, each with some spread."""
    spread = np.random.default_rng(2).lognormal(0, 0.12, len(labels))
    return np.clip(0.5 * 0.4 ** (labels / max(1, labels.max())) * spread, *BOUNDS)


def make_unimodal_run(
    folder: Path,
    data: str,
    *,
    loss: str = "isogclr",
    label: str = "cls",
    temperatures: Temperatures | None = warmer_heads,
    weights: int | None = 0,
    epochs: int = 2,
    **config: Any,
) -> Path:
    """Everything that a run leaves behind; returns the folder.

    Args:
        temperatures: None for a loss that has none.
        weights: seed of the model's weights; None for no checkpoint.
        config: of config.json, beyond or instead of the usual.
    """
    (folder / "checkpoints").mkdir(parents=True)
    index = ShardIndex.build(picture_shards(data), folder / "index", progress=False, workers=1)
    found = open_pictures(data, index, label=label).labels
    labels = np.zeros(index.number_of_rows, np.int64) if found is None else found
    taus = None if temperatures is None else temperatures(labels)
    content = {
        "name": folder.name,
        "kind": "unimodal",
        "loss": loss,
        "loss_config": dict(zip(("temperature_min", "temperature_max"), BOUNDS, strict=True)) | {"rho": 0.4},
        "directions": ["image"],
        "backbone": "tiny",
        "data": data,
        "split": "train",
        "label": label,
        "index": str(folder / "index"),
        "seed": 0,
        "epochs": epochs,
    }
    (folder / "config.json").write_text(json.dumps(content | config), encoding="utf-8")
    _write_journal(folder, taus, epochs)
    _write_store(folder, index, taus)
    if weights is not None:
        from support.view_checkpoints import save_view_checkpoint  # noqa: PLC0415 (torch)

        save_view_checkpoint(folder / "checkpoints" / f"epoch_{epochs}.pt", weights=weights, image_size=16)
    return folder


def _write_journal(folder: Path, taus: Floats | None, epochs: int) -> None:
    lines: list[dict[str, Any]] = [{"kind": "start", "step": 0}]
    for epoch in range(1, epochs + 1):
        line: dict[str, Any] = {"kind": "train", "step": 10 * epoch, "epoch": epoch, "loss": 3.0 / epoch}
        if taus is not None:
            name = "image.temperature"
            line |= {"objective": 0.4 / epoch, f"{name}.mean": float(taus.mean())}
            line |= {f"{name}.q{part:02d}": float(np.quantile(taus, part / 100)) for part in (5, 50, 95)}
            line |= {f"{name}.at_minimum": 0.0, f"{name}.at_maximum": 0.0}
            edges = np.geomspace(*BOUNDS, 65)
            counts = np.histogram(taus, edges)[0].tolist()
            spread = {"column": name, "edges": edges.tolist(), "counts": counts}
            lines.append({"kind": "distribution", "step": 10 * epoch, "epoch": epoch, **spread})
        lines += [line, {"kind": "val", "step": 10 * epoch, "epoch": epoch, "knn_top1": 0.3 + 0.1 * epoch}]
    text = "".join(json.dumps({**line, "time": time.time()}) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")


def _write_store(folder: Path, index: ShardIndex, taus: Floats | None) -> None:
    schema = schema_for(() if taus is None else COLUMNS)
    rows = np.arange(index.number_of_rows)
    values = schema.zeros(len(rows))
    if taus is not None:
        values["image_temperature"] = taus
    values["visits"] = values["last_epoch"] = 2
    with (
        StateStore.create(folder / "live", schema, len(rows), index.fingerprint) as store,
        write_generation(folder / "checkpoints" / "generations", step=20) as generation,
    ):
        store.write(rows, values, step=20)
        store.commit(generation / STORE_SNAPSHOT)
    for path in folder.glob("live*"):
        path.unlink()
