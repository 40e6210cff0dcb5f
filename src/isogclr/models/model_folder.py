"""The body of `isogclr export`: a folder that open_clip, clip_benchmark and the Hugging Face tools load.

A checkpoint of training.unimodal becomes a folder with its backbone instead (backbone_folder.py).

open_clip.create_model_and_transforms("local-dir:DIR")
clip_benchmark eval --model local-dir:DIR --output FILE …
huggingface-cli upload ORG/NAME DIR        then "hf-hub:ORG/NAME"
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isogclr.durable import fsync_file, make_directory, publish_directory, temporary_name, write_file
from isogclr.errors import ConfigError, InputError
from isogclr.models.checkpoints import LoadedModel, Weights, is_unimodal, load_model, read_weights

CONFIG = "open_clip_config.json"
WEIGHTS = "open_clip_model.safetensors"


@dataclass(frozen=True)
class Exported:
    """Names of the files that were written, and how to load them, for people."""

    names: list[str]
    advice: str


def export(checkpoint: Path, folder: Path, model_name: str | None = None) -> Exported:
    """Write the folder, whole or not at all."""
    if folder.exists():
        raise InputError(f"{folder} exists; name a folder that does not, or remove it")
    weights = read_weights(checkpoint)
    if is_unimodal(weights):
        return _export_backbone(weights, folder, model_name)
    loaded = load_model(checkpoint, model_name, weights=weights)
    names = _publish(folder, lambda partial: _write(loaded, partial))
    return Exported(names, f"load it as local-dir:{folder}")


def _export_backbone(weights: Weights, folder: Path, model_name: str | None) -> Exported:
    from isogclr.models.backbone_folder import how_to_load, write_backbone  # noqa: PLC0415 (torchvision)
    from isogclr.models.view_checkpoints import load_backbone  # noqa: PLC0415

    if model_name is not None:
        raise ConfigError([f"--model {model_name}: {weights.path} is of training.unimodal and knows its backbone"])
    loaded = load_backbone(weights.path, weights=weights)
    names = _publish(folder, lambda partial: write_backbone(loaded, partial))
    return Exported(names, f"load it so:\n\n{how_to_load(loaded, str(folder))}")


def _publish(folder: Path, write: Callable[[Path], None]) -> list[str]:
    make_directory(folder.absolute().parent)
    partial = temporary_name(folder.absolute())
    partial.mkdir()
    try:
        write(partial)
        names = sorted(path.name for path in partial.iterdir())
        publish_directory(partial, folder.absolute())
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return names


def _write(loaded: LoadedModel, folder: Path) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    state = {name: tensor.contiguous().clone() for name, tensor in loaded.model.state_dict().items()}
    save_file(state, folder / WEIGHTS, metadata={"format": "pt"})
    save = getattr(loaded.tokenizer, "save_pretrained", None)  # open_clip's own tokenizer has none and needs none
    if save is not None:
        save(folder)
    for path in folder.iterdir():
        fsync_file(path)
    config = {"model_cfg": loaded.config, "preprocess_cfg": _preprocess(loaded)}
    write_file(folder / CONFIG, [(json.dumps(config, indent=2) + "\n").encode()])
    write_file(folder / "README.md", [_card(loaded).encode()])


def _preprocess(loaded: LoadedModel) -> dict[str, Any]:
    """How images are prepared; the size follows from the model."""
    settings: dict[str, Any] = loaded.model.visual.preprocess_cfg  # type: ignore[union-attr, assignment]
    return {name: value for name, value in settings.items() if name != "size"}


def _card(loaded: LoadedModel) -> str:
    """A model card with the front matter that the hub reads. No licence: that is the owner's to say."""
    details = loaded.weights.details
    facts = {
        "model": loaded.name,
        "loss": details.get("loss"),
        "epoch": details.get("epoch", loaded.weights.epoch),
        "seed": details.get("seed"),
        "pretrained encoders": details.get("pretrained"),
    }
    lines = [
        "---",
        "library_name: open_clip",
        "pipeline_tag: zero-shot-image-classification",
        "tags:",
        "- clip",
        "---",
        f"# {loaded.name}",
        "",
        *(f"* {name}: {value}" for name, value in facts.items() if value is not None),
        "",
        'Load it with `open_clip.create_model_and_transforms("local-dir:THIS_FOLDER")`.',
    ]
    return "\n".join(lines) + "\n"
