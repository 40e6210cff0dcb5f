"""Sums over a D × D matrix that need not be there."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from isogclr.losses.views.whole_batch import off_diagonal_squares


class LargestTensor(TorchDispatchMode):
    """The number of elements of the largest result of any operator."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


@pytest.mark.parametrize("dimension", [1, 5, 15, 16, 40])
def test_both_ways_are_the_sum(dimension: int) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(8, dimension, generator=generator, dtype=torch.float64) for _ in range(2))
    product = left.t() @ right
    expected = sum(product[k, m] ** 2 for k in range(dimension) for m in range(dimension) if k != m)
    assert float(off_diagonal_squares(left, right)) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize(("batch", "dimension"), [(4, 100), (100, 4)])
def test_the_smaller_matrix_is_made(batch: int, dimension: int) -> None:
    left, right = (torch.randn(batch, dimension, requires_grad=True) for _ in range(2))
    with LargestTensor() as largest:
        off_diagonal_squares(left, right).backward()
    assert largest.elements == batch * dimension
