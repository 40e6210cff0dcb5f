"""`training.unimodal` as a program: two views of each picture, a backbone and its projector, kNN accuracy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from isogclr.distributed import Messages, Ranks
from isogclr.errors import TrainingError
from isogclr.losses import ContrastiveLoss, view_loss_class
from isogclr.pictures import LongTail, Pictures, open_pictures
from isogclr.pictures.long_tail import FILE_NAME as LONG_TAIL_FILE
from isogclr.pictures.preprocessing import CIFAR_MEAN, CIFAR_STD, Preprocessing
from isogclr.shard_index import ShardIndex
from training import open_clip_bridge as bridge
from training.data.picture_sources import open_picture_data
from training.data.two_views import ViewInputs, view_transform
from training.folder import RunFolder, versions
from training.loss import create_view_loss
from training.open_clip_bridge import Place
from training.params.unimodal_line import parse_unimodal
from training.program import Opened, Program
from training.ranks.node import Node
from training.settings import UnimodalSettings
from training.store.opening import open_index
from training.views.neighbours import NeighbourEvaluation, TrainingPart
from training.views.view_model import TrainedViewModel, create_view_model

KIND = "unimodal"
SPLIT = "train"  # of CIFAR; other data is named part by part


class UnimodalProgram(Program):
    """See the module.

    Args:
        settings: what the command line says.
        flags: all of them by name, for params.txt.
    """

    command = "python -m training.unimodal"
    kind = KIND
    settings: UnimodalSettings
    evaluates_first = True

    def __init__(self, settings: UnimodalSettings, flags: dict[str, Any]) -> None:
        self.settings = settings
        self.evaluates = settings.evaluation.val_data is not None
        self._flags = flags
        self._model: TrainedViewModel | None = None
        self._evaluation: NeighbourEvaluation | None = None
        self._training: TrainingPart | None = None

    @classmethod
    def parse(cls, argv: Sequence[str]) -> UnimodalProgram:
        return cls(*parse_unimodal(argv))

    def start_device(self) -> Place:
        place = bridge.start_device(self.settings.device)
        self._flags |= {"device": str(place.device), "rank": place.rank, "world_size": place.world_size}
        return place

    def arguments(self) -> dict[str, Any]:
        return dict(self._flags)

    def place_run(self, folder: RunFolder) -> None:
        self._flags["name"] = folder.name

    def go_back(self) -> None:
        super().go_back()
        self._model, self._evaluation = None, None  # a second model beside it may not fit

    def create_model(self, folder: RunFolder, place: Place, messages: Messages) -> TrainedViewModel:
        loss = view_loss_class(self.settings.loss.name)
        self._model = create_view_model(self.settings.model, loss, place, self.settings.run.seed)
        return self._model

    def open_evaluation(self, folder: RunFolder, place: Place) -> NeighbourEvaluation | None:
        if not self.evaluates:
            return None
        assert self._model is not None
        settings = self.settings
        self._evaluation = NeighbourEvaluation(
            settings.evaluation,
            settings.pictures.label,
            self._model,
            self._preprocessing,
            place,
            self._training_part,
        )
        return self._evaluation

    def open_index(self, path: Path, messages: Messages, node: Node) -> ShardIndex | None:
        assert self.settings.data is not None
        return open_index(self.settings.data, path, messages, node)

    def open_data(self, index: ShardIndex | None, folder: RunFolder, place: Place) -> Opened:
        settings, wanted = self.settings.data, self.settings.pictures
        assert settings is not None
        assert settings.train_data is not None
        pictures = open_pictures(settings.train_data, index, SPLIT, label=wanted.label)
        kept = None
        if wanted.imbalance is not None:
            kept = LongTail.of(pictures, wanted.imbalance, wanted.imbalance_seed)
            if place.is_first and folder.path is not None:
                write_long_tail(kept, folder.path / LONG_TAIL_FILE)
        self._training = TrainingPart(pictures, None if kept is None else kept.row_array)
        if self._evaluation is not None:
            self._evaluation.check()
        seen = self._preprocessing
        view = view_transform(seen.image_size, seen.mean, seen.std)
        data = open_picture_data(
            settings,
            pictures,
            ViewInputs(view, view),
            place.rank,
            place.world_size,
            pin_memory=place.device.type == "cuda",
            kept=kept,
        )
        return Opened(data, {"classes": self._classes(pictures, place)})

    def create_loss(self, ranks: Ranks, steps_per_epoch: int) -> ContrastiveLoss:
        return create_view_loss(self.settings.loss, ranks, steps_per_epoch, self.settings.run.epochs)

    def facts(self, loss: ContrastiveLoss) -> dict[str, Any]:
        settings, model, pictures = self.settings, self.settings.model, self.settings.pictures
        assert settings.data is not None
        return {
            "kind": self.kind,
            "loss": loss.name,
            "loss_config": loss.described_options(),
            "backbone": model.backbone,
            "stem": model.stem,
            "projector": model.projector,
            "image_size": model.image_size,
            "mean": list(self._preprocessing.mean),
            "std": list(self._preprocessing.std),
            "imbalance": pictures.imbalance,
            "long_tail_seed": None if pictures.imbalance is None else pictures.imbalance_seed,
            "data": settings.data.train_data,
            "split": SPLIT,
            "label": pictures.label,
            "seed": settings.run.seed,
            "versions": versions(),
        }

    @property
    def _preprocessing(self) -> Preprocessing:
        """Of evaluation; views are normalised in the same way."""
        size = self.settings.model.image_size
        if self.settings.model.stem == "cifar":
            return Preprocessing(size, CIFAR_MEAN, CIFAR_STD)
        return Preprocessing(size)

    def _training_part(self) -> TrainingPart:
        assert self._training is not None
        return self._training

    @staticmethod
    def _classes(pictures: Pictures, place: Place) -> list[str] | None:
        """For the checkpoint, which the first rank writes: of shards they cost a pass over the headers."""
        found = pictures.classes if place.is_first else None
        return None if found is None else list(found)


def write_long_tail(kept: LongTail, path: Path) -> None:
    """Once per run: a run that goes on must go on with the same pictures."""
    if not path.exists():
        kept.save(path)
        logging.info(f"--imbalance {kept.imbalance:g} keeps {len(kept.rows):,} of {sum(kept.sizes):,} pictures")
        return
    before = LongTail.load(path)
    if before.digest != kept.digest:
        raise TrainingError(
            f"{path}: found {len(before.rows):,} pictures that were kept by --imbalance {before.imbalance:g} "
            f"--imbalance-seed {before.seed}, expected those of --imbalance {kept.imbalance:g} --imbalance-seed "
            f"{kept.seed}: go on with the flags and the data that the run was begun with, or choose another --name"
        )
