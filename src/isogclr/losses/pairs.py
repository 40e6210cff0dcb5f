"""Gather 1 of a step: the pairs of all ranks."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from isogclr.distributed import Ranks
from isogclr.losses.inputs import check_batch
from isogclr.losses.kernel import Pairs

PADDING = -1  # row of a pair that only fills up a gather


@torch.no_grad()
def gather_pairs(
    ranks: Ranks, image_features: Tensor, text_features: Tensor, rows: Tensor, *, mask_positives: bool
) -> Pairs:
    """Features in their own dtype over the wire, in fp32 (or float64) afterwards. Shapes: [b, D] → `Pairs`.

    A rank with a smaller batch than the others sends padding, which takes part in nothing.
    """
    batch, dimension = image_features.shape
    rows = rows.to(image_features.device, non_blocking=True)
    capacity = ranks.capacity(batch, image_features.device)
    check_batch(capacity * ranks.size)
    dtype = torch.float64 if image_features.dtype == torch.float64 else torch.float32
    if ranks.size == 1:
        image, text = image_features.to(dtype), text_features.to(dtype)
        alone = _positives_only(rows, mask_positives, 1)
        return Pairs(image, text, image, text, rows, rows, 0, alone, mask_positives)
    missing = capacity - batch
    features = torch.cat([image_features, text_features], dim=1)  # [b, 2D]: one gather for both
    own = pad(features, (0, 0, 0, missing)) if missing else features
    own_rows = pad(rows, (0, missing), value=PADDING) if missing else rows
    everyone, all_rows = ranks.gather(own), ranks.gather(own_rows)
    everyone = everyone.to(dtype)
    offset = ranks.rank * capacity
    local = everyone[offset : offset + capacity]
    return Pairs(
        own_image=local[:, :dimension],
        own_text=local[:, dimension:],
        all_image=everyone[:, :dimension],
        all_text=everyone[:, dimension:],
        own_rows=own_rows,
        all_rows=all_rows,
        offset=offset,
        positives_only=_positives_only(all_rows, mask_positives, ranks.size),
        mask_positives=mask_positives,
    )


def pair_share(pairs: Pairs, ranks: Ranks) -> Tensor | float:
    """W / B: with it, the mean over ranks of the ranks' sums is the mean over all pairs. Padding is no pair."""
    if pairs.positives_only:
        return ranks.size / pairs.all_rows.shape[0]
    return ranks.size / (pairs.all_rows >= 0).sum().to(pairs.own_image.dtype)


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
