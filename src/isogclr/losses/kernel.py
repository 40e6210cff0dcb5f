"""Softmax statistics and feature gradients of a batch of pairs, in tiles of anchors.

A contrastive loss needs two passes over the similarities S = I Tᵀ. The first gives each anchor the statistics of
its candidates (`statistics`); from these the loss chooses a level c_i, so that the weights are
exp((S_ij − c_i) / τ_i). The second turns the weights of both directions into feature gradients (`gradients`):

    ∂loss/∂S_ij = w^img_ij + w^txt_ji   off the positives,      −p_i on them

The weights are closed form, so nothing is kept for autograd but the two gradients, [B, D] each, which
`attach_gradients` hands over. Similarities live in tiles of bounded size; if one tile holds all of them (small
batches), the second pass takes them from the first and one product is saved.

On one rank the rows of a tile are image anchors and its columns text anchors: both directions come from the same
product. With W ranks each rank holds b of the B pairs; its image anchors meet all texts and its text anchors all
images, which is two products of b × B.

Everything is IEEE fp32 (float64 for float64 features): `exact_products`.
"""

from __future__ import annotations

from collections.abc import Iterator
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


class Directions(NamedTuple):
    """One tensor for the image anchors and one for the text anchors."""

    image: Tensor
    text: Tensor


class Statistics(NamedTuple):
    """Of the candidates j of each anchor, under the weights exp(S_ij / τ_i). Shapes: [b]."""

    maximum: Tensor  # max_j S_ij
    log_sum: Tensor  # log Σ_j exp((S_ij − maximum_i) / τ_i)
    mean: Tensor  # Σ_j softmax_j(S_ij / τ_i) S_ij


@dataclass(frozen=True)
class Pairs:
    """The pairs of this rank (own) among those of all ranks, in order of rank.

    Args:
        own_image, own_text: features [b, D].
        all_image, all_text: features [B, D]; own pair i is pair offset + i.
        own_rows, all_rows: sample of each pair, [b] and [B]; below 0 for padding.
        offset: position of the first own pair.
        positives_only: no two pairs are of one sample and none is padding, so that excluding the positives is
            excluding all that is to be excluded.
        mask_positives: whether the own partner (and any pair of the same sample) is left out of the candidates.
    """

    own_image: Tensor
    own_text: Tensor
    all_image: Tensor
    all_text: Tensor
    own_rows: Tensor
    all_rows: Tensor
    offset: int
    positives_only: bool
    mask_positives: bool

    @property
    def square(self) -> bool:
        """Whether the own pairs are all pairs, so that one product serves both directions."""
        return self.own_image.shape[0] == self.all_image.shape[0]

    @property
    def own(self) -> slice:
        """Where the own pairs stand among all."""
        return slice(self.offset, self.offset + self.own_image.shape[0])

    def exclude(self, tile: Tensor, start: int) -> None:
        """Set the similarities of a tile, whose first row is own anchor `start`, to EXCLUDED where it is due."""
        if self.positives_only:
            if self.mask_positives:
                tile.diagonal(self.offset + start).fill_(EXCLUDED)
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


class Exponents(NamedTuple):
    """Of the image anchors and of the text anchors."""

    image: Exponent
    text: Exponent


class Kept(NamedTuple):
    """Similarities that one tile could hold, for the second pass."""

    image: Tensor | None
    text: Tensor | None


def statistics(
    pairs: Pairs, inverse_temperature: Directions, tile_rows: int | None = None
) -> tuple[Statistics, Statistics, Kept]:
    """First pass: statistics of the own image anchors and of the own text anchors."""
    image, columns, kept_image = _statistics(
        pairs, pairs.own_image, pairs.all_text, inverse_temperature.image, inverse_temperature.text, tile_rows
    )
    if columns is not None:
        return image, columns, Kept(kept_image, None)
    text, _, kept_text = _statistics(
        pairs, pairs.own_text, pairs.all_image, inverse_temperature.text, None, tile_rows
    )
    return image, text, Kept(kept_image, kept_text)


def gradients(
    pairs: Pairs,
    everyone: Exponents,
    positive_weight: Tensor,
    kept: Kept,
    tile_rows: int | None = None,
) -> Directions:
    """Second pass: Σ_j (w^img_ij + w^txt_ji) T_j − p_i T_i for the own images, and the same for the own texts.

    Args:
        everyone: of all anchors, [B].
        positive_weight: p [b].
        kept: from `statistics`; its tensors are overwritten.
    """
    own = Exponents(everyone.image.at(pairs.own), everyone.text.at(pairs.own))
    image, text = _gradients(
        pairs, pairs.own_image, pairs.all_text, own.image, everyone.text, kept.image, tile_rows
    )
    if text is None:
        text, _ = _gradients(pairs, pairs.own_text, pairs.all_image, own.text, everyone.image, kept.text, tile_rows)
    image.addcmul_(positive_weight[:, None], pairs.own_text, value=-1)
    text.addcmul_(positive_weight[:, None], pairs.own_image, value=-1)
    return Directions(image, text)


def _statistics(
    pairs: Pairs,
    anchors: Tensor,  # [b, D]
    candidates: Tensor,  # [B, D]
    by_row: Tensor,  # [b] inverse temperatures of the anchors
    by_column: Tensor | None,  # [B] inverse temperatures of the candidates as anchors; used on one rank
    tile_rows: int | None,
) -> tuple[Statistics, Statistics | None, Tensor | None]:
    total = Statistics(*(torch.empty_like(by_row) for _ in Statistics._fields))
    columns = _ColumnSums(by_column) if by_column is not None and pairs.square else None
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
    return total, columns.statistics() if columns is not None else None, tiles.kept()


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
) -> tuple[Tensor, Tensor | None]:
    of_anchors = torch.empty_like(anchors)
    of_candidates = torch.zeros_like(candidates) if pairs.square else None
    tiles = _Tiles(pairs, anchors, candidates, tile_rows, kept)
    for rows, tile in tiles:
        slope = tiles.exponentials(tile, by_row.level[rows, None], by_row.inverse_temperature[rows, None])
        tile.sub_(by_column.level).mul_(by_column.inverse_temperature).exp_()
        slope.add_(tile)
        torch.mm(slope, candidates, out=of_anchors[rows])
        if of_candidates is not None:
            of_candidates.addmm_(slope.t(), anchors[rows])
    return of_anchors, of_candidates


class _Tiles:
    """The similarities of some anchors at a time with all candidates, in two buffers that are used again.

    A tile [t, B] is overwritten by the next one; what `exponentials` returns, by its next call.
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
        self._rows = min(tile_rows or _tile_rows(candidates), anchors.shape[0])
        self._known = known
        self._similarity = known if known is not None else anchors.new_empty(self._rows, candidates.shape[0])
        self._scratch = torch.empty_like(self._similarity)

    def __iter__(self) -> Iterator[tuple[slice, Tensor]]:
        for start in range(0, self._anchors.shape[0], self._rows):
            rows = slice(start, min(start + self._rows, self._anchors.shape[0]))
            tile = self._similarity[: rows.stop - rows.start]
            if self._known is None:
                torch.mm(self._anchors[rows], self._candidates.t(), out=tile)
                self._pairs.exclude(tile, start)
            yield rows, tile

    def exponentials(self, tile: Tensor, level: Tensor, inverse_temperature: Tensor) -> Tensor:
        """exp((S − level) · inverse temperature), in the scratch buffer. Shapes: [t, B]."""
        result = self._scratch[: tile.shape[0]]
        return torch.sub(tile, level, out=result).mul_(inverse_temperature).exp_()

    def kept(self) -> Tensor | None:
        """The similarities, if one tile held all of them."""
        return self._similarity if self._rows == self._anchors.shape[0] else None


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
