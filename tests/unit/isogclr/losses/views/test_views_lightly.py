"""NT-Xent, DCL, Barlow Twins and VICReg of lightly, which somebody else has written, against ours."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lightly.loss import BarlowTwinsLoss, DCLLoss, NTXentLoss, VICRegLoss
from torch import Tensor
from torch.nn.functional import normalize

from isogclr.losses import VIEW_DIRECTIONS, view_loss_class

THEIRS: dict[str, tuple[dict[str, float], Callable[[Tensor, Tensor], Tensor]]] = {
    "simclr": ({"temperature": 0.3}, NTXentLoss(temperature=0.3)),
    "flatclr": ({"temperature": 0.3}, DCLLoss(temperature=0.3)),
    "barlow-twins": ({"redundancy_weight": 0.02}, BarlowTwinsLoss(lambda_param=0.02)),
    "vicreg": ({"variance_weight": 20.0}, VICRegLoss(mu_param=20.0)),
}


@pytest.mark.parametrize("dimension", [12, 70])
@pytest.mark.parametrize("name", THEIRS)
def test_equal(name: str, dimension: int) -> None:
    options, original = THEIRS[name]
    cls = view_loss_class(name)
    assert cls.config_class is not None
    loss = cls(cls.config_class(**options), directions=VIEW_DIRECTIONS)
    generator = torch.Generator().manual_seed(6)
    first = torch.randn(24, dimension, generator=generator, dtype=torch.float64)
    second = first + torch.randn(24, dimension, generator=generator, dtype=torch.float64)
    ours, theirs = ([tensor.clone().requires_grad_() for tensor in (first, second)] for _ in range(2))
    features = [normalize(tensor, dim=1) for tensor in ours] if cls.unit_features else ours
    value, expected = loss(*features).loss, original(*theirs)
    value.backward()
    expected.backward()
    if name != "flatclr":  # which reports NT-Xent; DCL leaves the partner out of the denominator
        assert value.item() == pytest.approx(expected.item(), rel=1e-9)
    for found, exact in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found.grad, exact.grad, rtol=1e-9, atol=1e-9 * float(exact.grad.abs().max()))
