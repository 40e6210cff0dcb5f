"""CyCLIP against its paper as float64 loops."""

from __future__ import annotations

import pytest
import torch

from isogclr.config import CyCLIPConfig
from isogclr.losses import CyCLIPLoss
from reference.cyclip import cyclip
from support.unit_pairs import unit_pairs


def check_against_paper(config: CyCLIPConfig, images, texts, scale: float, dtype, tolerance: float) -> None:
    ours = [tensor.to(dtype, copy=True).requires_grad_() for tensor in (images, texts, torch.tensor(scale))]
    theirs = [tensor.detach().double().requires_grad_() for tensor in ours]
    value = CyCLIPLoss(config)(*ours[:2], logit_scale=ours[2]).loss
    expected = cyclip(*theirs, config.in_modal_weight, config.cross_modal_weight)
    (3 * value).backward()
    (3 * expected).backward()
    torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=tolerance)
    for found, exact in zip(ours, theirs, strict=True):
        # Relative to a term of full weight, 3σ/2B: near the solution such terms cancel against each other.
        term = max(float(exact.grad.abs().max()), 3 * scale / (2 * len(images)))
        assert float((found.grad - exact.grad).abs().max()) <= tolerance * term


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("scale", [1.0, 14.3, 100.0])
@pytest.mark.parametrize("weights", [(0.25, 0.25), (0.25, 0.0), (0.0, 0.7), (0.0, 0.0)])
@pytest.mark.parametrize("batch", [2, 7])
def test_agrees_with_the_paper(weights, scale: float, batch: int, dtype, tolerance: float) -> None:
    config = CyCLIPConfig(*weights, tile_rows=3)
    tolerance = max(tolerance, 2e-7 * scale if dtype == torch.float32 else 0)
    check_against_paper(config, *unit_pairs(batch), scale, dtype, tolerance)


def test_agreeing_pairs_have_no_inconsistency() -> None:
    """Images equal to texts: both terms vanish exactly, also in fp32, where differences of large sums would not."""
    images, _ = unit_pairs(64, 16, dtype=torch.float32)
    scale = torch.tensor(10.0)
    plain = CyCLIPLoss(CyCLIPConfig(0.0, 0.0))(images, images, logit_scale=scale).loss
    assert torch.equal(CyCLIPLoss()(images, images, logit_scale=scale).loss, plain)


def test_narrow_cone_keeps_its_precision_in_fp32() -> None:
    """Features close to each other, as early in training: the terms are small against the Gram matrices."""
    generator = torch.Generator().manual_seed(5)
    centre = torch.randn(1, 8, generator=generator, dtype=torch.float64)
    images, texts = (
        torch.nn.functional.normalize(
            centre + 0.05 * torch.randn(24, 8, generator=generator, dtype=torch.float64), dim=1
        )
        for _ in range(2)
    )
    check_against_paper(CyCLIPConfig(), images.float(), texts.float(), 10.0, torch.float32, 1e-5)
