"""v_i and its gradients, for anchors that have nothing to be told from."""

from __future__ import annotations

import torch

from isogclr.distributed import Ranks
from isogclr.losses.pairs import gather_views
from isogclr.losses.views.contrast import contrast, contrast_gradients
from support.unit_pairs import unit_pairs


def test_weights_of_the_anchors_scale_the_gradients() -> None:
    """Σ a_i v_i is linear in a: what the losses choose, and nothing else, decides how much an anchor counts."""
    ranks = Ranks()
    pairs = gather_views(ranks, *unit_pairs(5), torch.arange(5))
    inverse = torch.linspace(2.0, 9.0, 10, dtype=torch.float64)

    def gradients(weight: torch.Tensor) -> torch.Tensor:
        found = contrast(pairs, [inverse], ranks, None)
        return contrast_gradients(found, [weight.log()], ranks)[0]

    whole = gradients(torch.ones(10, dtype=torch.float64))
    parts = [gradients(1e-12 + torch.eye(10, dtype=torch.float64)[i]) for i in range(10)]
    torch.testing.assert_close(torch.stack(parts).sum(dim=0), whole, rtol=1e-9, atol=1e-10)


def test_a_batch_of_one_picture_has_no_contrast() -> None:
    ranks = Ranks()
    pairs = gather_views(ranks, *unit_pairs(3), torch.full((3,), 4))
    found = contrast(pairs, [torch.full((6,), 10.0, dtype=torch.float64)], ranks, None)
    assert not found.active.any()
    assert float(found.mean(found.level)) == 0
    (gradient,) = contrast_gradients(found, [torch.zeros(6, dtype=torch.float64)], ranks)
    assert torch.equal(gradient, torch.zeros_like(gradient))
