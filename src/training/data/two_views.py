"""Two views of a picture: SimCLR's augmentation, by torchvision's v2 transforms.

Pictures are cropped and coloured as PIL images, which is quicker for small ones than tensors are, and blurred as
tensors. Every transform draws from torch's generator only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from isogclr.pictures.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from training.randomness import augmentation_seed, derive_seed, seed_augmentation

CROP_SCALE = (0.2, 1.0)
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


def view_transform(
    image_size: int,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    crop_scale: tuple[float, float] = CROP_SCALE,
) -> View:
    """SimCLR's augmentation: crop, flip, colour jitter, grey, blur; then normalised. [3, image_size, image_size].

    The blur is as wide as a tenth of the picture, and comes last, on floats: it costs no way back to a PIL image.
    """
    transform: View = v2.Compose(
        [
            v2.RandomResizedCrop(image_size, scale=crop_scale),
            v2.RandomHorizontalFlip(),
            v2.RandomApply([v2.ColorJitter(*JITTER)], p=JITTER_PROBABILITY),
            v2.RandomGrayscale(p=GREY_PROBABILITY),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.RandomApply([v2.GaussianBlur(blur_width(image_size), sigma=BLUR_SIGMA)], p=BLUR_PROBABILITY),
            v2.Normalize(list(mean), list(std)),
        ]
    )
    return transform


def blur_width(image_size: int) -> int:
    """Of the kernel in pixels: odd, and at least 3."""
    return max(3, image_size // 10 // 2 * 2 + 1)
