"""What a finished run is worth: recall, zero-shot accuracy by class, what its temperatures say about the data."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from grid import Run
from PIL import Image

from isogclr.models.checkpoints import load_model
from isogclr.models.embeddings import PairEmbedder, load_embedder
from isogclr.models.encoder import Encoder
from isogclr.models.epoch_files import newest_epoch_file
from isogclr.report.commonness import neighbour_similarity, rank_correlation, word_frequency
from isogclr.report.loading import load_runs
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.sample_keys import IMAGE_SUFFIXES
from isogclr.shard_index.tar_samples import samples_by_key
from isogclr.state.snapshot import Snapshot

Rows = list[tuple[str, str, float]]  # epoch, metric, value
BATCH = 256
RECALLS = tuple(f"{direction}_R@{rank}" for direction in ("image_to_text", "text_to_image") for rank in (1, 5, 10))
NEAR = 0.7  # cosine similarity from which two samples count as near


def measure(run: Run, data: Path, folder: Path) -> Rows:
    """All numbers of a run, in percent where they are shares."""
    rows = _recall(folder) if run.data_set.task == "retrieval" else _zero_shot(run, data, folder)
    if run.loss == "isogclr" and run.setting.get("isogclr_temperature_scope") != "global":
        rows += _temperatures(folder)
        if run.semantics:
            rows += _semantics(run, data, folder)
    return rows


def _recall(folder: Path) -> Rows:
    """From the validations that the trainer made itself; the mean of all six is what settings are chosen by."""
    rows: Rows = []
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] != "val":
            continue
        epoch = str(record["epoch"])
        rows += [(epoch, name, 100 * record[name]) for name in RECALLS]
        rows.append((epoch, "mean_recall", 100 * float(np.mean([record[name] for name in RECALLS]))))
    return rows


def _zero_shot(run: Run, data: Path, folder: Path) -> Rows:
    """Accuracy over all pictures, over classes, and over the largest, middle and smallest third of the classes."""
    classes = json.loads((data / "classes.json").read_text(encoding="utf-8"))
    checkpoint = _checkpoint(folder)
    loaded = load_model(checkpoint)
    loaded.model.eval()
    encoder = Encoder(loaded.model, loaded.preprocess, loaded.tokenizer)
    prompts = [[template.format(name) for template in classes["templates"]] for name in classes["names"]]
    with torch.inference_mode():
        text = torch.stack([encoder.unit_texts(some).mean(dim=0) for some in prompts])
        text = torch.nn.functional.normalize(text, dim=-1)
        found, labels = [], []
        for images, truth in _batches(data, run.split):
            pixels = torch.stack([encoder.preprocess(image) for image in images])
            found.append((encoder.unit_images(pixels) @ text.T).argmax(dim=1))
            labels += truth
    hit = (torch.cat(found) == torch.tensor(labels)).double().numpy()
    by_class = np.array([hit[np.array(labels) == number].mean() for number in range(len(prompts))])
    order = np.argsort(-np.array(classes["train_counts"]), kind="stable")
    third = -(-len(order) // 3)
    epoch = checkpoint.stem.removeprefix("epoch_")
    values = {
        "accuracy": hit.mean(),
        "mean_per_class": by_class.mean(),
        "head": by_class[order[:third]].mean(),
        "middle": by_class[order[third:-third]].mean(),
        "tail": by_class[order[-third:]].mean(),
    }
    return [(epoch, name, 100 * float(value)) for name, value in values.items()]


def _batches(data: Path, split: str) -> Iterator[tuple[list[Image.Image], list[int]]]:
    images: list[Image.Image] = []
    labels: list[int] = []
    for _, _, files in samples(data, split):
        images.append(Image.open(io.BytesIO(files["png"])).convert("RGB"))
        labels.append(int(files["cls"]))
        if len(images) == BATCH:
            yield images, labels
            images, labels = [], []
    if images:
        yield images, labels


def samples(data: Path, split: str) -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Shard, key and files by suffix of each sample."""
    for shard in map(str, sorted(data.glob(f"{split}-*.tar"))):
        for key, files in samples_by_key(shard).items():
            yield shard, key, files


def _checkpoint(folder: Path) -> Path:
    newest = newest_epoch_file(folder / "checkpoints")
    assert newest is not None
    return newest


def _state(folder: Path) -> npt.NDArray[np.void]:
    snapshot = load_runs([folder])[0].snapshot
    assert snapshot is not None
    with Snapshot(snapshot) as opened:
        state = opened.header.schema.zeros(opened.header.rows)
        for first, values in opened.visited():
            state[first : first + len(values)] = values
    return state


def _temperatures(folder: Path) -> Rows:
    """The distribution of both temperatures over the samples that were visited."""
    state = _state(folder)
    state = state[state["visits"] > 0]
    rows: Rows = []
    for side in ("image", "text"):
        values = state[f"{side}_temperature"]
        for share in (5, 25, 50, 75, 95):
            rows.append(("", f"{side}_temperature_q{share:02d}", float(np.quantile(values, share / 100))))
        low, high = float(values.min()), float(values.max())
        rows += [("", f"{side}_temperature_min", low), ("", f"{side}_temperature_max", high)]
    return rows


def _semantics(run: Run, data: Path, folder: Path) -> Rows:
    """Rank correlation of a sample's temperature with how common it is, by several measures."""
    state, index = _state(folder), ShardIndex.load(folder / "index")
    embed = load_embedder(_checkpoint(folder))
    assert isinstance(embed, PairEmbedder)
    images, captions, labels, rows = [], [], [], []
    for shard, key, files in samples(data, "train"):
        row = index.shard(shard).row(key)
        if state["visits"][row] == 0:
            continue
        picture = next(files[suffix] for suffix in IMAGE_SUFFIXES if suffix in files)
        images.append(Image.open(io.BytesIO(picture)).convert("RGB"))
        captions.append(files["txt"].decode())
        labels.append(files.get("cls", b"").decode())
        rows.append(row)
    image, text = (np.concatenate(parts) for parts in zip(*_embedded(embed, images, captions), strict=True))
    state = state[rows]
    common = {"caption_words": (word_frequency(captions),) * 2}
    if labels[0]:
        sizes = Counter(labels)
        common["class_size"] = (np.array([float(sizes[label]) for label in labels]),) * 2
    common["neighbour_similarity"] = (neighbour_similarity(image), neighbour_similarity(text))
    common["near_neighbours"] = (_near(image), _near(text))
    found: Rows = []
    for name, measures in common.items():
        for side, values in zip(("image", "text"), measures, strict=True):
            temperature = state[f"{side}_temperature"].astype(np.float64)
            found.append(("", f"{side}_temperature_against_{name}", rank_correlation(temperature, values)))
    return found


def _embedded(
    embed: PairEmbedder, images: list[Image.Image], captions: list[str]
) -> Iterator[tuple[object, object]]:
    for start in range(0, len(images), BATCH):
        yield embed.images(images[start : start + BATCH])[0], embed.texts(captions[start : start + BATCH])


def _near(features: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """How many other samples are within a cosine similarity of NEAR."""
    found = [
        (features[start : start + 512] @ features.T > NEAR).sum(axis=1) for start in range(0, len(features), 512)
    ]
    return np.concatenate(found).astype(np.float64) - 1
