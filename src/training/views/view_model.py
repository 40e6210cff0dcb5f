"""Backbone and projector, as a run trains them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from isogclr.losses import ContrastiveLoss
from isogclr.models.backbones import ViewModel, create_backbone, create_projector
from training.features import Features
from training.open_clip_bridge import Place
from training.randomness import seed_everything
from training.settings import ViewModelSettings


@dataclass(frozen=True)
class TrainedViewModel:
    """A model of two views in the forms that a run needs.

    Args:
        bare: without DDP; checkpoints hold its state, so names of weights do not depend on the number of ranks.
        wrapped: with DDP if there are several ranks.
    """

    bare: ViewModel
    wrapped: nn.Module
    input_dtype: torch.dtype | None = None  # views stay as they are; autocast does the rest

    @property
    def stored(self) -> nn.Module:
        return self.bare

    def features(self, inputs: Sequence[Tensor]) -> Features:
        """Of the two views of each picture."""
        first, second = self.wrapped(*inputs)
        return Features(first, second, {})

    def train(self) -> None:
        self.wrapped.train()

    def without_sync(self) -> AbstractContextManager[None]:
        if isinstance(self.wrapped, DistributedDataParallel):
            return cast(AbstractContextManager[None], self.wrapped.no_sync())
        return nullcontext()

    def after_step(self) -> None:
        """No parameter has bounds."""


def create_view_model(
    settings: ViewModelSettings, loss: type[ContrastiveLoss], place: Place, seed: int
) -> TrainedViewModel:
    """The model on its device, the same on all ranks; what it puts out is what the loss takes."""
    seed_everything(seed)
    backbone = create_backbone(settings.backbone, settings.stem)
    projector = create_projector(cast(int, backbone.width), settings.projector, loss.extra_outputs)
    bare = ViewModel(backbone, projector, loss.unit_features, loss.extra_outputs).to(place.device)
    seed_everything(seed, place.rank)
    if place.world_size == 1:
        return TrainedViewModel(bare, bare)
    if settings.sync_bn:
        converted = nn.SyncBatchNorm.convert_sync_batchnorm(bare)  # type: ignore[no-untyped-call]
        bare = cast(ViewModel, converted)
    on_device: dict[str, Any] = {} if place.device.type == "cpu" else {"device_ids": [place.device]}
    return TrainedViewModel(bare, DistributedDataParallel(bare, **on_device))
