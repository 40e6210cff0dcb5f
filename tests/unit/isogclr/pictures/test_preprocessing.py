"""What a model sees of a picture in an evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from isogclr.pictures.preprocessing import Preprocessing
from support.picture_sets import picture


def test_a_small_picture_of_the_right_size_is_only_normalised() -> None:
    found = Preprocessing(8, (0.5, 0.4, 0.3), (0.1, 0.2, 0.3))(picture(0))
    pixels = np.asarray(picture(0)).transpose(2, 0, 1) / 255
    expected = (pixels - np.reshape((0.5, 0.4, 0.3), (3, 1, 1))) / np.reshape((0.1, 0.2, 0.3), (3, 1, 1))
    torch.testing.assert_close(found.double(), torch.from_numpy(expected), rtol=1e-5, atol=1e-5)
    assert found.dtype == torch.float32


@pytest.mark.parametrize("size", [(8, 8), (40, 30), (7, 90), (500, 320)])
@pytest.mark.parametrize("image_size", [32, 96])
def test_pictures_of_all_sizes_become_one(size: tuple[int, int], image_size: int) -> None:
    assert Preprocessing(image_size)(picture(0, size)).shape == (3, image_size, image_size)


def test_large_ones_lose_their_edges() -> None:
    """As ImageNet is evaluated: 256 pixels, of which the middle 224 are seen."""
    one = np.zeros((256, 256, 3), dtype=np.uint8)
    one[:16] = one[-16:] = 255
    from PIL import Image  # noqa: PLC0415

    assert Preprocessing(224, (0, 0, 0), (1, 1, 1))(Image.fromarray(one)).max() == 0
    assert Preprocessing(32, (0, 0, 0), (1, 1, 1))(Image.fromarray(one)).max() > 0.9
