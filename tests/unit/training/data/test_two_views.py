"""Two views of a picture: SimCLR's augmentation, and random numbers that can be repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from support.picture_sets import picture
from training.data import two_views
from training.data.two_views import ViewInputs, blur_width, view_transform
from training.randomness import generators_preserved, seed_augmentation

PICTURE = picture(0, (32, 32))


@pytest.fixture(autouse=True)
def _generators() -> Any:
    with generators_preserved():
        yield


def views(seed: int, **options: Any) -> tuple[torch.Tensor, ...]:
    view = view_transform(32, **options)
    seed_augmentation(seed)
    return ViewInputs(view, view)(PICTURE)


def test_two_inputs_that_differ() -> None:
    first, second = views(0)
    assert first.shape == second.shape == (3, 32, 32)
    assert first.dtype == torch.float32
    assert not torch.equal(first, second)


def test_the_seed_of_the_sample_decides() -> None:
    assert all(map(torch.equal, views(5), views(5)))
    assert not torch.equal(views(5)[0], views(6)[0])


def test_a_view_does_not_depend_on_what_the_other_has_drawn() -> None:
    view = view_transform(32)

    def greedy(image: Image.Image) -> torch.Tensor:
        torch.rand(17)
        return view(image)

    seed_augmentation(3)
    plain = ViewInputs(view, view)(PICTURE)
    seed_augmentation(3)
    assert torch.equal(ViewInputs(greedy, view)(PICTURE)[1], plain[1])


def test_what_numpy_and_python_have_drawn_does_not_matter() -> None:
    """Nothing but torch's generator is used, so nothing else has to be seeded; it is nevertheless."""
    import random  # noqa: PLC0415

    view = view_transform(32)
    torch.default_generator.manual_seed(1)
    expected = view(PICTURE)
    random.random()
    np.random.rand()  # noqa: NPY002 (the global one)
    torch.default_generator.manual_seed(1)
    assert torch.equal(view(PICTURE), expected)


@pytest.mark.parametrize("size", [(8, 8), (5, 60), (300, 200)])
def test_pictures_of_all_sizes_become_one(size: tuple[int, int]) -> None:
    assert view_transform(32)(picture(1, size)).shape == (3, 32, 32)


def test_what_becomes_of_many() -> None:
    """The probabilities of the recipe, counted: grey 0.2, and crops that show a fifth of the picture or more."""
    columns = np.broadcast_to(np.arange(64, dtype=np.uint8) * 4, (64, 64))
    ramp = Image.fromarray(np.stack([columns, columns.T, 255 - columns], axis=-1))
    view = view_transform(32, mean=(0, 0, 0), std=(1, 1, 1))
    torch.default_generator.manual_seed(0)
    found = torch.stack([view(ramp) for _ in range(600)])
    grey = ((found[:, 0] - found[:, 1]).abs().amax(dim=(1, 2)) < 1e-6).float().mean()
    assert 0.14 < grey < 0.26
    assert 0 <= found.min() < found.max() < 1.001
    flipped = (found[:, 2, :, 0] < found[:, 2, :, -1]).float().mean()
    assert 0.35 < flipped < 0.65


@pytest.mark.parametrize("is_grey", [False, True])
def test_it_is_torchvisions_augmentation(monkeypatch: pytest.MonkeyPatch, is_grey: bool) -> None:
    """With every step taken: what `v2.Compose` makes of the same transforms and the same random numbers."""
    probabilities = {"FLIP": 1, "JITTER": 1, "GREY": float(is_grey), "BLUR": 1}
    for name, probability in probabilities.items():
        monkeypatch.setattr(two_views, f"{name}_PROBABILITY", probability)
    mean, std = (0.4, 0.5, 0.6), (0.1, 0.2, 0.3)
    expected = v2.Compose(
        [
            v2.RandomResizedCrop(32, scale=(0.2, 1.0)),
            v2.functional.horizontal_flip,
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
            *([v2.Grayscale(3)] if is_grey else []),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.GaussianBlur(3, (0.1, 2.0)),
            v2.Normalize(mean, std),
        ]
    )
    view = view_transform(32, mean, std)
    for seed in range(10):
        torch.default_generator.manual_seed(seed)
        found = view(PICTURE)
        torch.default_generator.manual_seed(seed)
        torch.rand(4)
        torch.testing.assert_close(found, expected(PICTURE))


def test_normalised_with_the_given_colours() -> None:
    plain, shifted = (views(2, mean=mean, std=(0.5, 0.5, 0.5))[0] for mean in ((0.0, 0.0, 0.0), (0.5, 0.25, 0.0)))
    torch.testing.assert_close(plain - shifted, torch.tensor([1.0, 0.5, 0.0]).view(3, 1, 1).expand(3, 32, 32))


@pytest.mark.parametrize(("image_size", "width"), [(8, 3), (32, 3), (48, 5), (96, 9), (224, 13)])
def test_the_blur_is_a_tenth_of_the_picture(image_size: int, width: int) -> None:
    assert blur_width(image_size) == width
