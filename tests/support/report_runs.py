"""Run directories for tests of the report: a small open_clip model really trained on the emoji of the package.

The files are those of the trainer (config.json, metrics.jsonl, checkpoints, generations with a store snapshot),
written with the store and the index of the library, so that a test does not wait for a whole training program.
"""

from __future__ import annotations

import io
import json
import math
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from isogclr import ISogCLRConfig, ISogCLRLoss, demo_data
from isogclr.losses import SampleState
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.patterns import expand_sources
from isogclr.state import STORE_SNAPSHOT, StateStore, schema_for, write_generation

MODEL = {
    "embed_dim": 64,
    "vision_cfg": {"image_size": 48, "patch_size": 8, "layers": 3, "width": 96, "head_width": 32},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 2, "layers": 1},
}
MEAN = np.array(open_clip.OPENAI_DATASET_MEAN, np.float32)
PAIRS = ("image", "text")
DEVIATION = np.array(open_clip.OPENAI_DATASET_STD, np.float32)


@dataclass(frozen=True)
class Pairs:
    images: Tensor  # [N, 3, 48, 48]
    texts: Tensor | None  # [N, 16]; None of samples without captions
    rows: Tensor  # [N]


def read_pairs(pattern: str, index: ShardIndex | None) -> Pairs:
    tokenizer = open_clip.SimpleTokenizer(context_length=16)
    images, captions, rows = [], [], []
    for shard in expand_sources(pattern):
        with tarfile.open(shard) as archive:
            for member in archive:
                stream = archive.extractfile(member)
                assert stream is not None
                if member.name.endswith(".webp"):
                    pixels = np.asarray(Image.open(io.BytesIO(stream.read())), np.float32) / 255
                    images.append(torch.from_numpy((pixels - MEAN) / DEVIATION).permute(2, 0, 1))
                    rows.append(-1 if index is None else index.row(shard, member.name.removesuffix(".webp")))
                elif member.name.endswith(".txt"):
                    captions.append(stream.read().decode())
    return Pairs(torch.stack(images), tokenizer(captions) if captions else None, torch.tensor(rows))


class Journal:
    """metrics.jsonl"""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, kind: str, **values: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "time": time.time(), **values}) + "\n")


def make_run(
    folder: Path,
    *,
    loss: str = "isogclr",
    data: str = demo_data.TRAIN_DATA,
    test_data: str = demo_data.TEST_DATA,
    epochs: int = 2,
    planned_epochs: int | None = None,
    batch: int = 128,
    seed: int = 0,
    directions: tuple[str, ...] | None = None,
    **options: Any,
) -> Path:
    """Train and write everything that a run leaves behind; returns the folder.

    Args:
        directions: named in the configuration. One alone is trained on two views of each picture, keeps the state
            of that direction only, and measures no retrieval. None is image and text, as runs that name none.
    """
    torch.manual_seed(seed)
    (folder / "checkpoints").mkdir(parents=True)
    index = ShardIndex.build(data, folder / "index", progress=False, workers=1)
    config = ISogCLRConfig.preset(
        "paper", **{"rho": 2.0, "temperature_init": 0.05, "temperature_rate": 0.003, **options}
    )
    _write_config(folder, loss, config, data, epochs=planned_epochs or epochs, batch=batch, seed=seed)
    if directions is not None:
        _name_directions(folder, directions)
    pairs, test = read_pairs(data, index), read_pairs(test_data, None)
    model = open_clip.model.CLIP(**MODEL, output_dict=True)
    _Training(folder, loss, config, model, index, directions or PAIRS).run(pairs, test, epochs, batch)
    return folder


class _Training:
    def __init__(
        self,
        folder: Path,
        loss: str,
        config: ISogCLRConfig,
        model: Any,
        index: ShardIndex,
        directions: tuple[str, ...],
    ) -> None:
        self.folder, self.loss, self.config, self.model, self.index = folder, loss, config, model, index
        self.directions = directions
        self.function = ISogCLRLoss(config)
        kept = [name for name in self.function.state_columns if name.split("_")[0] in directions]
        self.schema = schema_for(kept if loss == "isogclr" else ())
        self.table = self.function.initial_state(index.number_of_rows)
        self.last_epoch = np.zeros(index.number_of_rows, np.uint32)
        self.journal = Journal(folder / "metrics.jsonl")
        self.step = 0
        self.log_steps = 1 if index.number_of_rows < 1000 else 10

    def run(self, pairs: Pairs, test: Pairs, epochs: int, batch: int) -> None:
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.1)
        steps = epochs * (len(pairs.rows) // batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / max(1, steps)))
        )
        self.journal.write("start", step=0, resumed_from=None)
        for epoch in range(epochs):
            self.model.train()
            for rows in self._batches(len(pairs.rows), batch):
                started = time.perf_counter()
                values = self._step(pairs, rows, optimizer, schedule)
                self.step += 1
                if self.step % self.log_steps == 0:
                    rate = batch / (time.perf_counter() - started)
                    self._log_step(values, self.step / (steps // epochs), batch, rate)
            self._end_of_epoch(epoch + 1, test, optimizer)

    def _batches(self, samples: int, batch: int) -> Iterator[Tensor]:
        order = torch.randperm(samples)
        return (order[start : start + batch] for start in range(0, samples - batch + 1, batch))

    def _step(self, pairs: Pairs, positions: Tensor, optimizer: Any, schedule: Any) -> dict[str, Any]:
        first, second = self._features(pairs, positions)
        scale = self.model.logit_scale.exp()
        rows = pairs.rows[positions]
        values: dict[str, Any] = {}
        if self.loss == "isogclr":
            output = self.function(
                first,
                second,
                logit_scale=scale,
                rows=rows,
                state=self.table.take(rows),
                step=self.step,
            )
            assert output.state is not None
            values = {"state": output.state, **self.function.statistics(output)}
            self.table.put(rows, output.state)
            loss = output.loss
        else:
            loss = open_clip.ClipLoss()(first, second, scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        self.table.visits[rows] += 0 if self.loss == "isogclr" else 1
        self.last_epoch[rows.numpy()] = self.step // max(1, len(pairs.rows) // len(rows)) + 1
        return {**values, "loss": loss.detach(), "lr": schedule.get_last_lr()[0]}

    def _features(self, pairs: Pairs, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of pictures and captions, or of two views of the pictures. [B, D] each, of unit length"""
        first = self.model.encode_image(_shifted(pairs.images[positions]), normalize=True)
        if len(self.directions) == 1:
            return first, self.model.encode_image(_shifted(pairs.images[positions]), normalize=True)
        assert pairs.texts is not None
        return first, self.model.encode_text(pairs.texts[positions], normalize=True)

    def _log_step(self, values: dict[str, Any], epoch: float, batch: int, rate: float) -> None:
        line: dict[str, Any] = {
            "step": self.step,
            "epoch": epoch,
            "samples": self.step * batch,
            "loss": float(values["loss"]),
            "lr": values["lr"],
            "samples_per_second": rate,
        }
        if "objective" in values:
            line["objective"] = float(values["objective"])
            line |= self._temperature_statistics(values["state"])
        self.journal.write("train", **line)

    def _temperature_statistics(self, state: SampleState) -> dict[str, float]:
        line = {"first_visits": float((state.visits == 1).float().mean()), "kept_rows": 0.0}
        for side in self.directions:
            values = state.columns[f"{side}_temperature"]
            name = f"{side}.temperature"
            line[f"{name}.mean"] = float(values.mean())
            for quantile in (5, 50, 95):
                line[f"{name}.q{quantile:02d}"] = float(values.quantile(quantile / 100))
            line[f"{name}.at_minimum"] = float((values <= self.config.temperature_min).float().mean())
            line[f"{name}.at_maximum"] = float((values >= self.config.temperature_max).float().mean())
            line[f"{side}.log_mean.mean"] = float(state.columns[f"{side}_log_mean"].mean())
        return line

    def _end_of_epoch(self, epoch: int, test: Pairs, optimizer: Any) -> None:
        measured = self._retrieval(test) if len(self.directions) > 1 else {}
        self.journal.write("val", step=self.step, epoch=epoch, **measured)
        if self.loss == "isogclr":
            self._log_distributions(epoch)
        checkpoint = {
            "epoch": epoch,
            "name": self.folder.name,
            "state_dict": self.model.state_dict(),
            "isogclr": {
                "format": 1,
                "loss": self.loss,
                "model": "tiny-test",
                "model_config": MODEL,
                "step": self.step,
                "epoch": epoch,
                "seed": 0,
                "pretrained": False,
            },
        }
        torch.save(checkpoint, self.folder / "checkpoints" / f"epoch_{epoch}.pt")
        self._commit()

    def _log_distributions(self, epoch: int) -> None:
        edges = np.geomspace(self.config.temperature_min, self.config.temperature_max, 65)
        visited = self.table.visits > 0
        for column in (f"{side}_temperature" for side in self.directions):
            values = self.table.columns[column][visited].numpy().astype(np.float64)
            counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
            name = column.replace("_", ".")
            self.journal.write(
                "distribution",
                step=self.step,
                epoch=epoch,
                column=name,
                edges=edges.tolist(),
                counts=counts.tolist(),
            )

    @torch.no_grad()
    def _retrieval(self, test: Pairs) -> dict[str, float]:
        assert test.texts is not None
        self.model.eval()
        images = [normalize(self.model.encode_image(part), dim=1) for part in test.images.split(256)]
        texts = [normalize(self.model.encode_text(part), dim=1) for part in test.texts.split(256)]
        similarity = torch.cat(images) @ torch.cat(texts).T
        line = {}
        for name, matrix in (("image_to_text", similarity), ("text_to_image", similarity.T)):
            own = matrix.diagonal()[:, None]
            rank = (matrix > own).sum(dim=1)
            for k in (1, 5, 10):
                line[f"{name}_R@{k}"] = float((rank < k).float().mean())
        scale = self.model.logit_scale.exp()
        target = torch.arange(len(similarity))
        line["clip_val_loss"] = float(torch.nn.functional.cross_entropy(scale * similarity, target))
        return line

    def _commit(self) -> None:
        rows = np.arange(self.index.number_of_rows)
        values = self.schema.zeros(len(rows))
        for name in self.schema.state_columns:
            values[name] = self.table.columns[name].numpy()
        values["visits"] = self.table.visits.numpy()
        values["last_epoch"] = np.where(values["visits"] > 0, self.last_epoch, 0)
        live = self.folder / f"live-{self.step}"
        with (
            StateStore.create(live, self.schema, len(rows), self.index.fingerprint) as store,
            write_generation(self.folder / "checkpoints" / "generations", step=self.step) as generation,
        ):
            store.write(rows, values, step=self.step)
            store.commit(generation / STORE_SNAPSHOT)
        for path in self.folder.glob(f"live-{self.step}*"):
            path.unlink()


def _shifted(images: Tensor) -> Tensor:
    shift = tuple(int(value) for value in torch.randint(-3, 4, (2,)))
    return torch.roll(images, shift, (2, 3))


def _name_directions(folder: Path, directions: tuple[str, ...]) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "directions": list(directions)}), encoding="utf-8")


def _write_config(folder: Path, loss: str, config: ISogCLRConfig, data: str, **settings: int) -> None:
    content = {
        "name": folder.name,
        "loss": loss,
        "loss_config": vars(config) if loss == "isogclr" else {},
        "model": "tiny-test",
        "train_data": data,
        "dataset_type": "webdataset",
        "index": str(folder / "index"),
        "seed": settings["seed"],
        "batch_size": settings["batch"],
        "world_size": 1,
        "epochs": settings["epochs"],
        "versions": {"torch": torch.__version__, "open_clip": open_clip.__version__},
    }
    (folder / "config.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
