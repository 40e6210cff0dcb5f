"""Softmax statistics and feature gradients of a batch of positive pairs, in tiles of anchors.

A contrastive loss needs two passes over the similarities S of anchors with candidates. The first gives each anchor
the statistics of its candidates (`statistics`); from these the loss chooses a level c_i, so that the weights are
w_ij = exp((S_ij − c_i) / τ_i). The second turns the weights into feature gradients (`gradients`).

Two directions (image and text): S = X Yᵀ. Its rows are the anchors of the first direction, its columns those of the
second, and

    ∂loss/∂S_ij = w^first_ij + w^second_ji   off the positives,      −(p^first_i + p^second_i) on them

On one rank both directions come from the same product. With W ranks each rank holds b of the B pairs; its first
anchors meet all second features and its second anchors all first features, which is two products of b × B.

One direction (two views of the same pictures): S = Z Zᵀ. Its rows and its columns are the same anchors, all views,
and S is symmetric. With z_k the other view of z_i,

    ∂loss/∂z_i = Σ_j (w_ij + w_ji) z_j − (p_i + p_k) z_k

which is one product of the own views with all of them, on any number of ranks.

The weights are closed form, so nothing is kept for autograd but the gradients, [B, D] each, which
`attach_gradients` hands over. Similarities live in tiles of bounded size; if one tile holds all of them (small
batches), or if they take no more memory than the features do (long features), the second pass takes them from the
first and one product is saved. Of a symmetric S that is kept, the first pass makes the upper blocks only.

Everything is IEEE fp32 (float64 for float64 features): `exact_products`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isogclr.errors import InputError

# Similarity of a candidate that takes no part. Finite, so that 0 · EXCLUDED is 0 and not NaN; (EXCLUDED − c)/τ
# still fits into fp32 at τ = 1e-7.
EXCLUDED = -1e30

# Elements of a tile: 16 MiB in fp32. Measured on a CPU; a GPU wants larger tiles to fill its cores.
TILE_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 25}

# A symmetric product is made in blocks of rows, each from its diagonal on: 5/8 of the whole with 4 blocks. Only
# from this size of the features on, since smaller products lose more by being cut.
SYMMETRIC_BLOCKS = 4
SYMMETRIC_ELEMENTS = 1 << 18


class Statistics(NamedTuple):
    """Of the candidates j of each anchor, under the weights exp(S_ij / τ_i). Shapes: [b]."""

    maximum: Tensor  # max_j S_ij
    log_sum: Tensor  # log Σ_j exp((S_ij − maximum_i) / τ_i)
    mean: Tensor  # Σ_j softmax_j(S_ij / τ_i) S_ij


@dataclass(frozen=True)
class Pairs:
    """The positive pairs of this rank (own) among those of all ranks, in order of rank.

    With two directions an entry of `own_features` is one side of the pairs, and pair i is entry i of both. With one
    direction it is all own views, first views before second ones: those of pair i are views i and b/2 + i. In both
    cases b is the number of own anchors of a direction, and B that of all ranks.

    Args:
        own_features: [b, D] for each direction.
        all_features: [B, D] for each direction; own anchor i is anchor offset + i.
        own_rows, all_rows: sample of each anchor, [b] and [B]; below 0 for padding.
        offset: position of the first own anchor.
        positives_only: no two pairs are of one sample and none is padding, so that excluding the diagonal is
            excluding all that is to be excluded; with one direction, the diagonals of an anchor and of its partner.
            With one direction and several ranks it is never so.
        mask_positives: whether the own partner (and any pair of the same sample) is left out of the candidates.
            With one direction it must be: an anchor is a candidate too.
    """

    own_features: tuple[Tensor, ...]
    all_features: tuple[Tensor, ...]
    own_rows: Tensor
    all_rows: Tensor
    offset: int
    positives_only: bool
    mask_positives: bool

    @property
    def square(self) -> bool:
        """Whether the columns of the own product are the own anchors of the second direction."""
        return len(self.own_features) == 2 and self.own_rows.shape == self.all_rows.shape

    @property
    def symmetric(self) -> bool:
        """Whether the own product is that of a matrix with itself."""
        return len(self.own_features) == 1 and self.own_rows.shape == self.all_rows.shape

    @property
    def own(self) -> slice:
        """Where the own anchors stand among all."""
        return slice(self.offset, self.offset + self.own_rows.shape[0])

    @property
    def views(self) -> int:
        """Anchors that a pair has in a direction."""
        return 2 // len(self.own_features)

    def positives(self) -> Tensor:
        """Similarity of every anchor of all ranks with its partner, [B]."""
        if self.views == 1:
            first, second = self.all_features
            return (first * second).sum(dim=1)
        (features,) = self.all_features
        by_rank = features.view(-1, 2, self.own_rows.shape[0] // 2, features.shape[1])  # [W, 2, b/2, D]
        similarity = (by_rank[:, 0] * by_rank[:, 1]).sum(dim=2)  # [W, b/2]
        return torch.cat([similarity, similarity], dim=1).flatten()

    def partners(self, values: Sequence[Tensor]) -> list[Tensor]:
        """What belongs to the partners of the own anchors, from what belongs to the anchors of each direction."""
        if len(values) == 1:
            return [values[0].roll(values[0].shape[0] // 2, dims=0)]
        return [*reversed(values)]

    def exclude(self, tile: Tensor, start: int) -> None:
        """Set the similarities of a tile, whose first row is own anchor `start`, to EXCLUDED where it is due."""
        if self.positives_only:
            if self.mask_positives:
                tile.diagonal(self.offset + start).fill_(EXCLUDED)
                if self.views == 2:
                    half = self.own_rows.shape[0] // 2
                    tile.diagonal(start + half).fill_(EXCLUDED)
                    tile.diagonal(start - half).fill_(EXCLUDED)
            return
        if self.mask_positives:
            own = self.own_rows[start : start + tile.shape[0]]
            tile.masked_fill_(own[:, None] == self.all_rows, EXCLUDED)
        tile.masked_fill_(self.all_rows < 0, EXCLUDED)


class Exponent(NamedTuple):
    """The weights of the anchors of one direction are exp((S − level) · inverse temperature)."""

    inverse_temperature: Tensor
    level: Tensor

    def at(self, rows: slice) -> Exponent:
        """Those of some anchors."""
        return Exponent(self.inverse_temperature[rows], self.level[rows])


Kept = list[Tensor | None]  # similarities that one tile could hold, for the second pass; one for each product


def statistics(
    pairs: Pairs, inverse_temperature: Sequence[Tensor], tile_rows: int | None = None
) -> tuple[list[Statistics], Kept]:
    """First pass: statistics of the own anchors of each direction, from their inverse temperatures, [b] each."""
    sides = [*zip(pairs.own_features, reversed(pairs.all_features), inverse_temperature, strict=True)]
    if pairs.square:
        columns = _ColumnSums(inverse_temperature[1])
        rows, similarity = _statistics(pairs, *sides[0], tile_rows, columns)
        return [rows, columns.statistics()], [similarity]
    found = [_statistics(pairs, *side, tile_rows) for side in sides]
    return [rows for rows, _ in found], [similarity for _, similarity in found]


def gradients(
    pairs: Pairs,
    everyone: Sequence[Exponent],
    positive_weight: Sequence[Tensor],
    kept: Kept,
    tile_rows: int | None = None,
) -> list[Tensor]:
    """Second pass: Σ_j (w_ij + w_ji) y_j − (p_i + p_k) y_k for the own anchors of each direction, [b, D] each.

    y are the features of the other direction (of the only one, if there is one), and k is the partner of i.

    Args:
        everyone: of all anchors of each direction, [B].
        positive_weight: p of the own anchors of each direction, [b].
        kept: from `statistics`; its tensors are overwritten.
    """
    exponents = zip(everyone, reversed(everyone), strict=True)
    sides = [
        (anchors, candidates, by_row.at(pairs.own), by_column)
        for anchors, candidates, (by_row, by_column) in zip(
            pairs.own_features, reversed(pairs.all_features), exponents, strict=True
        )
    ]
    if pairs.square:
        columns = torch.zeros_like(pairs.own_features[1])
        found = [_gradients(pairs, *sides[0], kept[0], tile_rows, columns), columns]
    else:
        found = [_gradients(pairs, *side, one, tile_rows) for side, one in zip(sides, kept, strict=True)]
    features, weights = pairs.partners(pairs.own_features), pairs.partners(positive_weight)
    for gradient, partner, own, other in zip(found, features, positive_weight, weights, strict=True):
        gradient.addcmul_((own + other)[:, None], partner, value=-1)
    return found


def _statistics(
    pairs: Pairs,
    anchors: Tensor,  # [b, D]
    candidates: Tensor,  # [B, D]
    by_row: Tensor,  # [b] inverse temperatures of the anchors
    tile_rows: int | None,
    columns: _ColumnSums | None = None,  # takes those of the candidates as anchors
) -> tuple[Statistics, Tensor | None]:
    total = Statistics(*(torch.empty_like(by_row) for _ in Statistics._fields))
    tiles = _Tiles(pairs, anchors, candidates, tile_rows)
    for rows, tile in tiles:
        level = tile.amax(dim=1)
        weight = tiles.exponentials(tile, level[:, None], by_row[rows, None])
        normalizer = weight.sum(dim=1)
        total.maximum[rows] = level
        total.log_sum[rows] = normalizer.log()
        total.mean[rows] = weight.mul_(tile).sum(dim=1) / normalizer
        if columns is not None:
            columns.add(tile, tiles)
    return total, tiles.kept()


class _ColumnSums:
    """Statistics of the columns, when a column is spread over tiles: sums under a maximum that may still rise."""

    def __init__(self, inverse_temperature: Tensor) -> None:
        self.inverse_temperature = inverse_temperature
        self.maximum = torch.full_like(inverse_temperature, 2 * EXCLUDED)
        self.normalizer = torch.zeros_like(inverse_temperature)
        self.weighted = torch.zeros_like(inverse_temperature)

    def add(self, tile: Tensor, tiles: _Tiles) -> None:
        maximum = torch.maximum(self.maximum, tile.amax(dim=0))
        fade = torch.exp((self.maximum - maximum) * self.inverse_temperature)
        weight = tiles.exponentials(tile, maximum, self.inverse_temperature)
        self.normalizer.mul_(fade).add_(weight.sum(dim=0))
        self.weighted.mul_(fade).add_(weight.mul_(tile).sum(dim=0))
        self.maximum = maximum

    def statistics(self) -> Statistics:
        return Statistics(self.maximum, self.normalizer.log(), self.weighted / self.normalizer)


def _gradients(
    pairs: Pairs,
    anchors: Tensor,  # [b, D]
    candidates: Tensor,  # [B, D]
    by_row: Exponent,  # [b]
    by_column: Exponent,  # [B]
    kept: Tensor | None,
    tile_rows: int | None,
    of_candidates: Tensor | None = None,  # [B, D]: those of the candidates as anchors are added to it
) -> Tensor:
    of_anchors = torch.empty_like(anchors)
    tiles = _Tiles(pairs, anchors, candidates, tile_rows, kept)
    for rows, tile in tiles:
        slope = tiles.exponentials(tile, by_row.level[rows, None], by_row.inverse_temperature[rows, None])
        tile.sub_(by_column.level).mul_(by_column.inverse_temperature).exp_()
        slope.add_(tile)
        torch.mm(slope, candidates, out=of_anchors[rows])
        if of_candidates is not None:
            of_candidates.addmm_(slope.t(), anchors[rows])
    return of_anchors


class _Tiles:
    """The similarities of some anchors at a time with all candidates, in two buffers that are used again.

    A tile [t, B] is overwritten by the next one, unless all are kept. What `exponentials` returns is overwritten by
    its next call.
    """

    def __init__(
        self,
        pairs: Pairs,
        anchors: Tensor,
        candidates: Tensor,
        tile_rows: int | None,
        known: Tensor | None = None,
    ) -> None:
        self._pairs, self._anchors, self._candidates = pairs, anchors, candidates
        batch, everyone = anchors.shape[0], candidates.shape[0]
        self._rows = min(tile_rows or _tile_rows(candidates), batch)
        affordable = tile_rows is None and batch * everyone <= candidates.numel()
        self._keeps = known is not None or self._rows == batch or affordable
        if self._keeps and pairs.symmetric and tile_rows is None and anchors.numel() >= SYMMETRIC_ELEMENTS:
            self._rows = min(self._rows, -(-batch // SYMMETRIC_BLOCKS))
        self._known = known
        rows = batch if self._keeps else self._rows
        self._similarity = known if known is not None else anchors.new_empty(rows, everyone)
        self._scratch = anchors.new_empty(self._rows, everyone)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, self._anchors.shape[0], self._rows):
            rows = slice(start, min(start + self._rows, self._anchors.shape[0]))
            tile = self._similarity[rows] if self._keeps else self._similarity[: rows.stop - rows.start]
            if self._known is None:
                self._multiply(rows, tile)
                self._pairs.exclude(tile, start)
            yield rows, tile

    def _multiply(self, rows: slice, tile: Tensor) -> None:
        if not (self._keeps and self._pairs.symmetric):
            torch.mm(self._anchors[rows], self._candidates.t(), out=tile)
            return
        # What is to the left was made by earlier tiles, what is below is taken from here.
        torch.mm(self._anchors[rows], self._candidates[rows.start :].t(), out=tile[:, rows.start :])
        self._similarity[rows.stop :, rows].copy_(tile[:, rows.stop :].t())

    def exponentials(self, tile: Tensor, level: Tensor, inverse_temperature: Tensor) -> Tensor:
        """exp((S − level) · inverse temperature), in the scratch buffer. Shapes: [t, B]."""
        result = self._scratch[: tile.shape[0]]
        return torch.sub(tile, level, out=result).mul_(inverse_temperature).exp_()

    def kept(self) -> Tensor | None:
        """The similarities, if there was room for all of them."""
        return self._similarity if self._keeps else None


def _tile_rows(candidates: Tensor) -> int:
    elements = TILE_ELEMENTS.get(candidates.device.type, TILE_ELEMENTS["cuda"])
    return max(1, elements // candidates.shape[0])


@contextmanager
def exact_products(device_type: str) -> Iterator[None]:
    """IEEE products whatever autocast or TF32 would make of them.

    At τ = 0.005 the rounding of a bf16 similarity changes the exponent h/τ by 0.19 on average.
    """
    # Per backend, not torch.set_float32_matmul_precision: that raises once somebody has used this newer interface.
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul)  # type: ignore[attr-defined]
    lowered = [(b, b.fp32_precision) for b in backends if b.fp32_precision not in ("none", "ieee")]
    with torch.autocast(device_type=device_type, enabled=False):
        try:
            for backend, _ in lowered:
                backend.fp32_precision = "ieee"
            yield
        finally:
            for backend, precision in lowered:
                backend.fp32_precision = "none"  # what it was, if that is inherited from a setting above it
                if backend.fp32_precision != precision:
                    backend.fp32_precision = precision


class _AttachGradients(torch.autograd.Function):
    """A value whose gradients are known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, *tensors_and_gradients: Tensor) -> Tensor:
        half = len(tensors_and_gradients) // 2
        ctx.dtypes = [tensor.dtype for tensor in tensors_and_gradients[:half]]
        ctx.save_for_backward(*tensors_and_gradients[half:])
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True; without this, second derivatives would silently be 0
            raise InputError("this loss has no second derivatives: do not call backward with create_graph=True")
        # Scaled before the cast: with a GradScaler the unscaled gradients may be below what fp16 can hold.
        scaled = [
            (gradient * grad_output).to(dtype)
            for gradient, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return (None, *scaled, *(None for _ in scaled))


def attach_gradients(value: Tensor, tensors: list[Tensor], gradients: list[Tensor]) -> Tensor:
    """`value` as a function of `tensors` with the given gradients; backward only scales them."""
    result: Tensor = _AttachGradients.apply(value, *tensors, *gradients)  # type: ignore[no-untyped-call]
    return result
