"""From a picture to the input of a model, without augmentation: what evaluation uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
_SMALL = 64  # smaller pictures are shown whole
_MARGIN = 8 / 7  # 256 to 224, as ImageNet is evaluated


@dataclass(frozen=True)
class Preprocessing:
    """Resize, crop the middle, normalise.

    An input of less than 64 pixels shows the picture whole, as CIFAR is evaluated; a larger one loses an eighth of
    the shorter side at the edges, as ImageNet is evaluated. Pictures may differ in size; of a long one the middle
    stays.

    Attributes:
        image_size: width and height of the input.
        mean, std: of the colours, each in [0, 1].
    """

    image_size: int
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD

    def __call__(self, picture: Image.Image) -> Tensor:
        """[3, image_size, image_size] float32."""
        found: Tensor = self._transform(picture)
        return found

    @cached_property
    def _transform(self) -> Any:
        size = self.image_size
        resized = size if size < _SMALL else round(size * _MARGIN)
        return v2.Compose(
            [
                v2.Resize(resized, interpolation=v2.InterpolationMode.BICUBIC),
                v2.CenterCrop(size),
                *self.to_input(),
            ]
        )

    def to_input(self) -> list[Any]:
        """The last transforms of every pipeline: a tensor, normalised."""
        return [
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(self.mean), list(self.std)),
        ]
