"""Gather 1 of a step: one process alone, and ranks whose batches differ in size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from isogclr.distributed import Ranks
from isogclr.errors import InputError
from isogclr.losses.pairs import PADDING, gather_pairs, pair_share
from support.gloo import run_ranks
from support.unit_pairs import unit_pairs


def test_one_process_has_all_pairs() -> None:
    image, text = unit_pairs(4, 8)
    rows = torch.tensor([3, 1, 4, 1])
    pairs = gather_pairs(Ranks(), image, text, rows, mask_positives=True)
    assert torch.equal(pairs.all_features[0], image)
    assert torch.equal(pairs.all_features[1], text)
    assert (pairs.all_rows.tolist(), pairs.offset) == ([3, 1, 4, 1], 0)
    assert float(pair_share(pairs, Ranks())) == 1 / 4


@pytest.mark.parametrize(
    ("rows", "mask_positives", "expected"),
    [([0, 1, 2], True, True), ([0, 1, 0], True, False), ([0, 1, 0], False, True)],
)
def test_repeated_rows_are_noticed_where_they_matter(rows: list[int], mask_positives: bool, expected: bool) -> None:
    pairs = gather_pairs(Ranks(), *unit_pairs(3, 8), torch.tensor(rows), mask_positives=mask_positives)
    assert pairs.positives_only is expected


def test_a_pair_alone_has_no_negatives() -> None:
    with pytest.raises(InputError, match="the global batch is 1, but must be 2 or more"):
        gather_pairs(Ranks(), *unit_pairs(1, 8), torch.tensor([0]), mask_positives=True)


def test_half_precision_is_widened() -> None:
    image, text = (features.bfloat16() for features in unit_pairs(3, 8))
    pairs = gather_pairs(Ranks(), image, text, torch.arange(3), mask_positives=True)
    assert pairs.all_features[0].dtype == pairs.own_features[1].dtype == torch.float32


def uneven() -> dict[str, Any]:
    """Rank 0 has three pairs, rank 1 two; features tell rank and place."""
    ranks = Ranks()
    batch = 3 - ranks.rank
    image = torch.tensor([[10.0 * ranks.rank + place, 0.0] for place in range(batch)])
    rows = torch.arange(batch) + 100 * ranks.rank
    pairs = gather_pairs(ranks, image, -image, rows, mask_positives=True)
    return {
        "offset": pairs.offset,
        "rows": pairs.all_rows.tolist(),
        "image": pairs.all_features[0][:, 0].tolist(),
        "text": pairs.all_features[1][:, 0].tolist(),
        "own": (pairs.own_rows.tolist(), pairs.own_features[0][:, 0].tolist()),
        "share": float(pair_share(pairs, ranks)),
    }


def test_a_smaller_batch_is_filled_with_padding_that_is_no_pair() -> None:
    first, second = run_ranks(2, uneven)
    everyone = [0.0, 1.0, 2.0, 10.0, 11.0, 0.0]
    for found in (first, second):
        assert found["rows"] == [0, 1, 2, 100, 101, PADDING]
        assert found["image"] == everyone
        assert found["text"] == [-one for one in everyone]
        assert found["share"] == pytest.approx(2 / 5)
    assert (first["offset"], second["offset"]) == (0, 3)
    assert second["own"] == ([100, 101, PADDING], [10.0, 11.0, 0.0])
