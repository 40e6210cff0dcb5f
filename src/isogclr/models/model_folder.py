"""The body of `isogclr export`: a folder that open_clip, clip_benchmark and the Hugging Face tools load.

open_clip.create_model_and_transforms("local-dir:DIR")
clip_benchmark eval --model local-dir:DIR --output FILE …
huggingface-cli upload ORG/NAME DIR        then "hf-hub:ORG/NAME"
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from isogclr.durable import fsync_file, make_directory, publish_directory, temporary_name, write_file
from isogclr.errors import InputError
from isogclr.models.checkpoints import LoadedModel, load_model

CONFIG = "open_clip_config.json"
WEIGHTS = "open_clip_model.safetensors"


def export(checkpoint: Path, folder: Path, model_name: str | None = None) -> list[str]:
    """Write the folder, whole or not at all; returns the names of its files."""
    if folder.exists():
        raise InputError(f"{folder} exists; name a folder that does not, or remove it")
    loaded = load_model(checkpoint, model_name)
    make_directory(folder.absolute().parent)
    partial = temporary_name(folder.absolute())
    partial.mkdir()
    try:
        _write(loaded, partial)
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
