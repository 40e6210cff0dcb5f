"""A backbone of training.unimodal for others to use: `backbone.safetensors` and `backbone.pt`, with what feeds it.

Weights have torchvision's names, so that `resnet18().load_state_dict(weights, strict=False)` misses `fc` alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from isogclr.durable import fsync_file, write_file
from isogclr.models.view_checkpoints import LoadedBackbone

SAFETENSORS, STATE_DICT, FACTS = "backbone.safetensors", "backbone.pt", "backbone.json"
_PREPROCESSING = ("image_size", "mean", "std")
_TRAINING = ("loss", "loss_config", "epoch", "seed", "data", "classes", "imbalance", "projector", "versions")


def write_backbone(loaded: LoadedBackbone, folder: Path) -> None:
    """Fill an empty folder."""
    from safetensors.torch import save_file  # noqa: PLC0415 (comes with the extra `eval`)

    state = {name: tensor.cpu().contiguous().clone() for name, tensor in loaded.backbone.state_dict().items()}
    save_file(state, folder / SAFETENSORS, metadata={"format": "pt"})
    torch.save(state, folder / STATE_DICT)
    for path in folder.iterdir():
        fsync_file(path)
    text = json.dumps(_facts(loaded), indent=2, ensure_ascii=False, default=str) + "\n"
    write_file(folder / FACTS, [text.encode()])
    write_file(folder / "README.md", [_card(loaded).encode()])


def _facts(loaded: LoadedBackbone) -> dict[str, Any]:
    details = loaded.weights.details
    training = {name: details.get(name) for name in _TRAINING}
    if training["epoch"] is None:
        training["epoch"] = loaded.weights.epoch
    return {
        "backbone": details["backbone"],
        "stem": details["stem"],
        "width": loaded.width,
        "preprocessing": {name: details[name] for name in _PREPROCESSING},
        "training": training,
    }


def how_to_load(loaded: LoadedBackbone, folder: str = ".") -> str:
    """A few lines of Python: torchvision alone for its resnets, ours for backbones that it does not have."""
    name, stem = loaded.weights.details["backbone"], loaded.weights.details["stem"]
    lines = ["import torch"]
    if not str(name).startswith("resnet"):
        lines += ["from isogclr.models.backbones import create_backbone", ""]
        lines += [f'model = create_backbone("{name}", "{stem}")']
        return "\n".join([*lines, f'model.load_state_dict(torch.load("{folder}/{STATE_DICT}"))'])
    lines += [f"from torchvision.models import {name}", "", f"model = {name}()"]
    if stem == "cifar":
        lines += [
            "model.conv1 = torch.nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)  # CIFAR stem",
            "model.maxpool = torch.nn.Identity()",
        ]
    lines += [
        f'model.load_state_dict(torch.load("{folder}/{STATE_DICT}"), strict=False)  # misses fc.weight and fc.bias',
        f"model.fc = torch.nn.Identity()  # {loaded.width:,} features per picture; or a classifier of your own",
    ]
    return "\n".join(lines)


def _card(loaded: LoadedBackbone) -> str:
    """A model card with the front matter that the hub reads. No licence: that is the owner's to say."""
    details = loaded.weights.details
    side = details["image_size"]
    facts = {
        "loss": details.get("loss"),
        "epoch": details.get("epoch", loaded.weights.epoch),
        "seed": details.get("seed"),
        "input": f"{side} × {side} pixels, mean {details['mean']}, deviation {details['std']}",
    }
    lines = [
        "---",
        "pipeline_tag: image-feature-extraction",
        "---",
        f"# {loaded.name}",
        "",
        *(f"* {name}: {value}" for name, value in facts.items() if value is not None),
        "",
        "```python",
        how_to_load(loaded),
        "```",
    ]
    return "\n".join(lines) + "\n"
