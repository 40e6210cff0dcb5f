"""Two views of a picture: SimCLR's augmentation, by torchvision's v2 transforms.

Pictures are cropped and coloured as PIL images, which is quicker for small ones than tensors are, and blurred as
tensors. Every transform draws from torch's generator only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from isogclr.pictures.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from training.randomness import augmentation_seed, derive_seed, seed_augmentation

CROP_SCALE = (0.2, 1.0)  # of the area
FLIP_PROBABILITY = 0.5
JITTER, JITTER_PROBABILITY = (0.4, 0.4, 0.4, 0.1), 0.8  # brightness, contrast, saturation, hue
GREY_PROBABILITY = 0.2
BLUR_PROBABILITY, BLUR_SIGMA = 0.5, (0.1, 2.0)

View = Callable[[Image.Image], Tensor]


@dataclass(frozen=True)
class ViewInputs:
    """From a picture to two inputs of the model.

    Each view draws from a seed of its own, made of that of the sample (seed, epoch, row) and its number: so it is
    the same picture whatever the other view has drawn.
    """

    first: View
    second: View

    def __call__(self, picture: Image.Image) -> tuple[Tensor, ...]:
        seed = augmentation_seed()
        inputs = []
        for number, view in enumerate((self.first, self.second)):
            seed_augmentation(derive_seed("view", seed, number))
            inputs.append(view(picture))
        return tuple(inputs)


class SimCLRView:
    """SimCLR's augmentation: crop, flip, colour jitter, grey, blur; then normalised. See `view_transform`.

    The parameters of each transform are drawn and used here, one after the other. `v2.Compose` does the same, but
    looks for boxes and masks beside the picture in front of every transform, which takes a third of the time on 32
    pixels. The blur comes last, on floats: so it costs no way back to a PIL image.
    """

    def __init__(
        self, image_size: int, mean: Sequence[float], std: Sequence[float], crop_scale: tuple[float, float]
    ) -> None:
        self._crop = v2.RandomResizedCrop(image_size, scale=crop_scale)
        self._jitter = v2.ColorJitter(*JITTER)
        self._blur = v2.GaussianBlur(blur_width(image_size), sigma=BLUR_SIGMA)
        self._mean, self._std = (torch.tensor(one).view(3, 1, 1) for one in (mean, std))

    def __call__(self, picture: Image.Image) -> Tensor:
        flip, jitter, grey, blur = torch.rand(4).tolist()
        picture = _apply(self._crop, picture)
        if flip < FLIP_PROBABILITY:
            picture = functional.horizontal_flip(picture)
        if jitter < JITTER_PROBABILITY:
            picture = _apply(self._jitter, picture)
        if grey < GREY_PROBABILITY:
            picture = functional.rgb_to_grayscale(picture, num_output_channels=3)
        pixels: Tensor = functional.to_dtype(functional.pil_to_tensor(picture), torch.float32, scale=True)
        if blur < BLUR_PROBABILITY:
            pixels = _apply(self._blur, pixels)
        return (pixels - self._mean) / self._std


def _apply(transform: v2.Transform, picture: Any) -> Any:
    return transform.transform(picture, transform.make_params([picture]))


def view_transform(
    image_size: int,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    crop_scale: tuple[float, float] = CROP_SCALE,
) -> View:
    """From a picture of any size to a view, [3, image_size, image_size] float32."""
    return SimCLRView(image_size, mean, std, crop_scale)


def blur_width(image_size: int) -> int:
    """Of the kernel in pixels: odd, and not beyond three σ to each side, where nothing is left to be seen."""
    return min(max(3, image_size // 10 // 2 * 2 + 1), 2 * round(3 * BLUR_SIGMA[1]) + 1)
