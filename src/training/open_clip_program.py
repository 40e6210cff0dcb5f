"""`training.main` as a program: pictures and captions, open_clip's model, its validation and its flags."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from isogclr.distributed import Messages, Ranks
from isogclr.losses import ContrastiveLoss
from isogclr.shard_index import ShardIndex
from training import params
from training.data.epoch import TrainData
from training.data.image_text import PairInputs
from training.evaluation import PairEvaluation
from training.folder import RunFolder, versions
from training.loss import create_loss, described
from training.model import Model, create_model, prepare_text_tower
from training.open_clip_bridge import OpenClip, Place
from training.program import Opened, Program
from training.ranks.node import Node
from training.settings import Settings
from training.store.opening import open_index


class OpenClipProgram(Program):
    """See the module.

    Args:
        settings: what the command line says.
        open_clip: its parts that need its arguments.
    """

    command = "python -m training.main"
    settings: Settings

    def __init__(self, settings: Settings, open_clip: OpenClip) -> None:
        self.settings = settings
        self._open_clip = open_clip
        self.meets_by_environment = open_clip.meets_by_environment
        self.evaluates = open_clip.evaluates or settings.evaluation.suite is not None
        self._created: Model | None = None

    @classmethod
    def parse(cls, argv: Sequence[str]) -> OpenClipProgram:
        settings, arguments = params.parse(argv)
        return cls(settings, OpenClip(arguments))

    def start_device(self) -> Place:
        return self._open_clip.start_device()

    def arguments(self) -> dict[str, Any]:
        return self._open_clip.arguments()

    def place_run(self, folder: RunFolder) -> None:
        self._open_clip.place_run(folder.name, folder.checkpoints)

    def go_back(self) -> None:
        super().go_back()
        self._created = None  # a second model beside it may not fit

    def create_model(self, folder: RunFolder, place: Place, messages: Messages) -> Model:
        settings = self.settings.model
        prepared = prepare_text_tower(settings, folder.scratch / "text_model") if place.is_first else None
        found = messages.from_first(None if prepared is None else str(prepared))
        tower = None if found is None else Path(found)
        self._created = create_model(settings, place, self.settings.run.seed, tower)
        return self._created

    @property
    def _model(self) -> Model:
        assert self._created is not None
        return self._created

    def open_evaluation(self, folder: RunFolder, place: Place) -> PairEvaluation:
        settings = self.settings
        return PairEvaluation(self._open_clip, settings.evaluation, self._model, place, settings.model.precision)

    def start_remote_sync(self, run: Path) -> Callable[[], None] | None:
        return self._open_clip.start_remote_sync(run)

    def open_index(self, path: Path, messages: Messages, node: Node) -> ShardIndex | None:
        assert self.settings.data is not None
        return open_index(self.settings.data, path, messages, node)

    def open_data(self, index: ShardIndex | None, folder: RunFolder, place: Place) -> Opened:
        assert self.settings.data is not None
        inputs = PairInputs(self._model.transforms[0], self._model.tokenizer)
        pins = place.device.type == "cuda"
        return Opened(TrainData.open(self.settings.data, index, place.rank, place.world_size, inputs, pins))

    def create_loss(self, ranks: Ranks, steps_per_epoch: int) -> ContrastiveLoss:
        if ranks.rank == 0:
            logging.info(described(self.settings.loss))
        return create_loss(self.settings.loss, ranks, steps_per_epoch, self.settings.run.epochs)

    def facts(self, loss: ContrastiveLoss) -> dict[str, Any]:
        settings, model = self.settings.model, self._model
        options = settings.factory_options
        has_text_weights = "hf_model_name" in model.config.get("text_cfg", {}) and bool(
            options.get("pretrained_text")
        )
        return {
            "loss": loss.name,
            "loss_config": loss.described_options(),
            "model": settings.name,
            "model_config": dict(model.config),
            "preprocess_cfg": model.preprocess_config,
            "pretrained": bool(settings.pretrained) or bool(options.get("pretrained_image")) or has_text_weights,
            "seed": self.settings.run.seed,
            "versions": versions(),
        }
