"""Small data sets in the real on-disk formats, and a tiny model with random weights."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from support.shard_writing import write_copy_shards

MODEL = "isogclr-tiny"
COLOURS = ("red", "green", "blue", "grey", "pale", "dark", "bright")
THINGS = ("cat", "bridge", "basket", "boat", "kite", "lamp", "tree", "door", "horse", "cloud", "stone")
Pairs = list[tuple[bytes, list[str]]]


def jpeg(number: int, size: int = 40) -> bytes:
    """A picture that differs from all others, large features first: noise would look the same to a model."""
    random = np.random.default_rng(number)
    coarse = Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    stream = io.BytesIO()
    coarse.resize((size, size + number % 7), Image.Resampling.BICUBIC).save(stream, format="jpeg", quality=90)
    return stream.getvalue()


def pairs(images: int, captions: Sequence[int] = (5,)) -> Pairs:
    """Images with as many different captions each as `captions` says, in turn."""
    made = []
    for number in range(images):
        texts = [
            f"a {COLOURS[(number + 3 * n) % 7]} {THINGS[(number * 3 + n) % 11]}, number {number * 10 + n}"
            for n in range(captions[number % len(captions)])
        ]
        made.append((jpeg(number), texts))
    return made


def write_flickr30k(folder: Path, data: Pairs) -> Path:
    """`*.jpg` beside `flickr30k_test_karpathy.txt`."""
    folder.mkdir(parents=True)
    lines = ["image,caption"]
    for number, (image, captions) in enumerate(data):
        (folder / f"{1000 + number}.jpg").write_bytes(image)
        lines += [f"{1000 + number}.jpg,{caption}" for caption in captions]
    (folder / "flickr30k_test_karpathy.txt").write_text("\n".join(lines) + "\n")
    return folder


def write_mscoco(folder: Path, data: Pairs) -> Path:
    """`val2014/*.jpg` and `coco_test_karpathy.json`; captions stand in an order of their own."""
    (folder / "val2014").mkdir(parents=True)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (image, captions) in enumerate(data):
        name = f"COCO_val2014_{number:012d}.jpg"
        (folder / "val2014" / name).write_bytes(image)
        images.append({"id": 100 + number, "file_name": name})
        annotations += [{"image_id": 100 + number, "caption": caption} for caption in captions]
    annotations.reverse()
    content = {"images": images, "annotations": [{"id": n, **a} for n, a in enumerate(annotations)]}
    (folder / "coco_test_karpathy.json").write_text(json.dumps(content))
    return folder


def write_retrieval_copy(folder: Path, data: Pairs, shards: int = 2) -> Path:
    samples = [
        ((f"s{number:07d}.jpg", image), (f"s{number:07d}.txt", "\n".join(captions).encode()))
        for number, (image, captions) in enumerate(data)
    ]
    write_copy_shards(folder, samples, shards)
    (folder / "dataset_type.txt").write_text("retrieval\n")
    return folder


def write_classification_copy(folder: Path, classes: Sequence[str], labels: Sequence[int], shards: int = 2) -> Path:
    samples = [
        ((f"s{number:07d}.jpg", jpeg(number)), (f"s{number:07d}.cls", str(label).encode()))
        for number, label in enumerate(labels)
    ]
    write_copy_shards(folder, samples, shards)
    (folder / "classnames.txt").write_text("\n".join(classes) + "\n")
    (folder / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\na small {c}.\n")
    return folder


def class_names(count: int) -> list[str]:
    return [f"{COLOURS[n % 7]} {THINGS[n % 11]} {n}" for n in range(count)]


@dataclass(frozen=True)
class Tiny:
    """The tiny model with random weights, and what feeds it."""

    model: Any
    preprocess: Any
    tokenizer: Any


def tiny_model(seed: int = 0) -> Tiny:
    import open_clip  # noqa: PLC0415 (takes seconds)
    import torch  # noqa: PLC0415

    from isogclr.models import model_configs  # noqa: PLC0415

    model_configs.register()
    torch.manual_seed(seed)
    model, _, preprocess = open_clip.create_model_and_transforms(MODEL)
    with torch.no_grad():  # freshly initialised towers map everything to nearly the same place
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2.0)
    return Tiny(model.eval(), preprocess, open_clip.get_tokenizer(MODEL))


def save_checkpoint(path: Path, model: Any, /, **details: Any) -> Path:
    """As training.main writes it: open_clip's keys and ours."""
    import open_clip  # noqa: PLC0415
    import torch  # noqa: PLC0415

    path.parent.mkdir(parents=True, exist_ok=True)
    ours = {
        "format": 1,
        "loss": "isogclr",
        "loss_config": {"rho": 6.0},
        "model": MODEL,
        "model_config": open_clip.get_model_config(MODEL),
        "step": 10,
        "epoch": 1,
        "seed": 0,
        "pretrained": False,
    }
    content = {"epoch": 1, "name": "run", "state_dict": model.state_dict(), "optimizer": {}}
    torch.save({**content, "isogclr": ours | details}, path)
    if path.parent.name == "checkpoints":
        run = {"train_data": "cc3m.tar", "batch_size": 512, "settings": {"optimizer": {"lr": 2e-4}}}
        (path.parent.parent / "config.json").write_text(json.dumps(run))
    return path
