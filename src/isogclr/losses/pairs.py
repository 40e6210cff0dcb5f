"""Gather 1 of a step: the pairs of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from isogclr import objective
from isogclr.distributed import Ranks
from isogclr.losses.inputs import check_batch
from isogclr.losses.kernel import Pairs

PADDING = -1  # row of a pair that only fills up a gather


@torch.no_grad()
def gather_pairs(ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor, *, mask_positives: bool) -> Pairs:
    """Two directions. Features in their own dtype over the wire, in fp32 (or float64) afterwards. Shapes: [b, D].

    A rank with a smaller batch than the others sends padding, which takes part in nothing.
    """
    batch, dimension = first.shape
    rows = rows.to(first.device, non_blocking=True)
    capacity = _capacity(ranks, first)
    if ranks.size == 1:
        both = (first.to(_dtype(first)), second.to(_dtype(first)))
        return Pairs(both, both, rows, rows, 0, _positives_only(rows, mask_positives, 1), mask_positives)
    missing = capacity - batch
    features = torch.cat([first, second], dim=1)  # [b, 2D]: one gather for both
    own = pad(features, (0, 0, 0, missing)) if missing else features
    own_rows = pad(rows, (0, missing), value=PADDING) if missing else rows
    everyone, all_rows = ranks.gather(own), ranks.gather(own_rows)
    everyone = everyone.to(_dtype(first))
    offset = ranks.rank * capacity
    local = everyone[offset : offset + capacity]
    return Pairs(
        own_features=(local[:, :dimension], local[:, dimension:]),
        all_features=(everyone[:, :dimension], everyone[:, dimension:]),
        own_rows=own_rows,
        all_rows=all_rows,
        offset=offset,
        positives_only=_positives_only(all_rows, mask_positives, ranks.size),
        mask_positives=mask_positives,
    )


@torch.no_grad()
def gather_views(ranks: Ranks, first: Tensor, second: Tensor, rows: Tensor) -> Pairs:
    """One direction: two views of each picture, [b, D] each, are 2b anchors. Otherwise as `gather_pairs`."""
    missing = _capacity(ranks, first) - first.shape[0]
    own = torch.cat([pad(view, (0, 0, 0, missing)) for view in (first, second)])
    rows = pad(rows.to(first.device, non_blocking=True), (0, missing), value=PADDING)
    own_rows = torch.cat([rows, rows])
    everyone = ranks.gather(own).to(_dtype(first))
    offset = ranks.rank * own.shape[0]
    return Pairs(
        own_features=(everyone[offset : offset + own.shape[0]],),
        all_features=(everyone,),
        own_rows=own_rows,
        all_rows=ranks.gather(own_rows),
        offset=offset,
        positives_only=ranks.size == 1 and _positives_only(rows, mask_positives=True, ranks=1),
        mask_positives=True,
    )


def _capacity(ranks: Ranks, features: Tensor) -> int:
    """Pairs that every rank sends."""
    capacity = ranks.capacity(features.shape[0], features.device)
    check_batch(capacity * ranks.size)
    return capacity


def _dtype(features: Tensor) -> torch.dtype:
    return torch.float64 if features.dtype == torch.float64 else torch.float32


def pair_share(pairs: Pairs, ranks: Ranks) -> Tensor | float:
    """W / B: with it, the mean over ranks of the ranks' sums is the mean over all anchors. Padding is no anchor."""
    if pairs.positives_only:
        return ranks.size / pairs.all_rows.shape[0]
    return ranks.size / (pairs.all_rows >= 0).sum().to(pairs.own_features[0].dtype)


def number_of_negatives(pairs: Pairs) -> Tensor:
    """|N_j| of all anchors of a direction, [B], when the positives are masked."""
    if pairs.positives_only:
        return torch.full_like(pairs.all_rows, pairs.all_rows.shape[0] - pairs.views)
    return objective.number_of_negatives(pairs.all_rows, pairs.all_rows)


def _positives_only(all_rows: Tensor, mask_positives: bool, ranks: int) -> bool:
    """Whether no pair but an anchor's own is to be excluded. Looked at on the CPU only: elsewhere it would
    synchronise, and comparing rows costs less than waiting."""
    if not mask_positives and ranks == 1:
        return True
    if all_rows.device.type != "cpu":
        return False
    padded = bool((all_rows < 0).any())
    if not mask_positives:
        return not padded
    return not padded and torch.unique(all_rows).numel() == all_rows.numel()
