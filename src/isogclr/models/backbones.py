"""Backbones of pictures, projectors, and both as a model of two views: what `training.unimodal` trains.

Weights of a resnet have torchvision's names, without `fc`; in a checkpoint they stand behind `backbone.`, those of
the projector behind `projector.`.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from isogclr.errors import ModelError

BACKBONES = ("resnet18", "resnet50", "tiny", "tiny-groupnorm")
# imagenet: 7×7, stride 2, and max-pool, as torchvision has it. cifar: 3×3, stride 1, no pool, for small pictures.
STEMS = ("cifar", "imagenet")
SMALL_PICTURE_PIXELS = 64  # a side, up to which the imagenet stem would leave too little to look at
_TINY_CHANNELS = (24, 48, 96, 192)
_GROUP_CHANNELS = 8


def create_backbone(name: str, stem: str) -> nn.Module:
    """A backbone with random weights: pictures [B, 3, H, W] to features [B, width]; `width` is an attribute.

    Args:
        name: of `BACKBONES`.
        stem: of `STEMS`.
    """
    if name not in BACKBONES:
        raise ModelError(f"there is no backbone {name!r}; choose one of {', '.join(BACKBONES)}")
    if stem not in STEMS:
        raise ModelError(f"there is no stem {stem!r}; choose one of {', '.join(STEMS)}")
    return _resnet(name, stem) if name.startswith("resnet") else _tiny(stem, batch_norm=name == "tiny")


def _resnet(name: str, stem: str) -> nn.Module:
    from torchvision.models import resnet18, resnet50  # noqa: PLC0415 (slow to import)

    model = cast(nn.Module, {"resnet18": resnet18, "resnet50": resnet50}[name](weights=None))
    width = cast(nn.Linear, model.fc).in_features
    model.fc = nn.Identity()
    if stem == "cifar":
        conv = nn.Conv2d(3, 64, kernel_size=3, stride=1, padding=1, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")  # as torchvision's
        model.conv1, model.maxpool = conv, nn.Identity()
    return _with_width(model, width)


def _tiny(stem: str, batch_norm: bool) -> nn.Module:
    """Four convolutions and a mean over places, for CPUs. With group norm a picture's features are its own."""

    def block(channels: int, out: int, kernel: int, stride: int) -> nn.Sequential:
        conv = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False)
        norm = nn.BatchNorm2d(out) if batch_norm else nn.GroupNorm(out // _GROUP_CHANNELS, out)
        return nn.Sequential(conv, norm, nn.ReLU(inplace=True))

    first, *others = _TINY_CHANNELS
    layers = [block(3, first, 3, 1)]
    if stem == "imagenet":
        layers = [block(3, first, 7, 2), nn.Sequential(nn.MaxPool2d(3, 2, padding=1))]
    for channels, out in zip(_TINY_CHANNELS, others, strict=False):
        layers.append(block(channels, out, 3, 2))
    return _with_width(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), _TINY_CHANNELS[-1])


def _with_width(model: nn.Module, width: int) -> nn.Module:
    model.width = width  # type: ignore[assignment]  # torch types attributes as if all were tensors or modules
    return model


def projector_widths(text: str) -> tuple[int, ...]:
    """Of its layers, from the flag: `8192-8192-8192`."""
    parts = text.split("-")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise ModelError(f"projector {text!r}: expected the widths of its layers, as in 8192-8192-8192")
    return tuple(map(int, parts))


def create_projector(width: int, text: str, extra_outputs: int = 0) -> nn.Sequential:
    """VICReg's, which the paper takes for all methods: batch norm and ReLU behind all linear layers but the last.

    Args:
        width: of the backbone.
        text: see `projector_widths`.
        extra_outputs: beyond the last width, for a loss that asks for them.
    """
    *hidden, last = projector_widths(text)
    layers: list[nn.Module] = []
    for out in hidden:
        layers += [nn.Linear(width, out, bias=False), nn.BatchNorm1d(out), nn.ReLU(inplace=True)]
        width = out
    return nn.Sequential(*layers, nn.Linear(width, last + extra_outputs, bias=False))


class ViewModel(nn.Module):
    """A backbone and its projector.

    Args:
        unit_features: bring what the projector gives to unit length.
        extra_outputs: of the projector, its last columns; they stay as they are.
    """

    def __init__(
        self, backbone: nn.Module, projector: nn.Module, unit_features: bool = True, extra_outputs: int = 0
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.projector = projector
        self._unit_features = unit_features
        self._extra_outputs = extra_outputs

    def forward(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Features of two views of each picture, [B, D] each. One pass: batch norm sees both views together."""
        features = self.projector(self.backbone(torch.cat([first, second])))
        if self._unit_features:
            directions = features.shape[1] - self._extra_outputs
            unit = normalize(features[:, :directions], dim=1)
            features = torch.cat([unit, features[:, directions:]], dim=1) if self._extra_outputs else unit
        one, other = features.chunk(2)
        return one, other
