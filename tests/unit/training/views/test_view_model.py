"""Backbone and projector, as a run trains them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from isogclr.losses import VIEW_LOSSES
from isogclr.models.backbones import ViewModel
from training.open_clip_bridge import Place
from training.randomness import capture, restore
from training.settings import ViewModelSettings
from training.views.view_model import TrainedViewModel, create_view_model

FIRST = Place(torch.device("cpu"), rank=0, local_rank=0, world_size=1)
SETTINGS = ViewModelSettings("tiny", "cifar", "16-8", 16, "fp32")


@pytest.fixture(autouse=True)
def _generators_of_other_tests() -> Iterator[None]:
    state = capture(FIRST.device)
    yield
    restore(state, FIRST.device)


@pytest.mark.parametrize("name", sorted(VIEW_LOSSES))
def test_it_puts_out_what_the_loss_takes(name: str) -> None:
    loss = VIEW_LOSSES[name]
    model = create_view_model(SETTINGS, loss, FIRST, seed=0)
    first, second, scalars = model.features((torch.rand(4, 3, 16, 16), torch.rand(4, 3, 16, 16)))
    assert first.shape == second.shape == (4, 8 + loss.extra_outputs)
    assert torch.allclose(first[:, :8].norm(dim=1), torch.ones(4)) == loss.unit_features
    assert scalars == {}


def test_weights_depend_on_the_seed_and_not_on_the_rank() -> None:
    def weights(seed: int, rank: int = 0) -> torch.Tensor:
        place = Place(torch.device("cpu"), rank=rank, local_rank=rank, world_size=1)
        model = create_view_model(SETTINGS, VIEW_LOSSES["simclr"], place, seed)
        return torch.cat([value.flatten() for value in model.stored.parameters()])

    assert torch.equal(weights(1), weights(1, rank=3))
    assert not torch.equal(weights(1), weights(2))


def test_a_checkpoint_does_not_know_the_number_of_ranks() -> None:
    """What is stored is the bare model, whatever is around it."""
    bare = create_view_model(SETTINGS, VIEW_LOSSES["simclr"], FIRST, 0).bare
    wrapped = torch.nn.Sequential(bare)
    model = TrainedViewModel(bare, wrapped)
    assert isinstance(model.stored, ViewModel)
    assert {name.partition(".")[0] for name in model.stored.state_dict()} == {"backbone", "projector"}
