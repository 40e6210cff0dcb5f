"""Checks of what a loss is called with. Shapes and dtypes always; values only when asked: they synchronise."""

from __future__ import annotations

import torch
from torch import Tensor

from isogclr.errors import InputError
from isogclr.losses.base import SampleState

# How far the length of a feature may be from 1: a few roundings of its dtype.
LENGTH_TOLERANCE = {torch.float16: 5e-3, torch.bfloat16: 3e-2, torch.float32: 1e-3, torch.float64: 1e-3}


def check_features(
    first: Tensor,
    second: Tensor,
    directions: tuple[str, ...],
    *,
    values: bool,
    unit_length: bool = True,
    extra_columns: int = 0,
) -> None:
    """Two tensors [B, D] of equal shape, floating dtype and device; with `values`, finite and of unit length.

    Args:
        unit_length: whether the length is looked at.
        extra_columns: at the end; they are no part of the vector of unit length.
    """
    inputs = directions if len(directions) == 2 else ("first", "second")
    named = dict(zip((f"{name}_features" for name in inputs), (first, second), strict=True))
    for name, features in named.items():
        _check_tensor(name, features)
        if features.ndim != 2:
            raise InputError(f"{name} has shape {list(features.shape)}, but must be 2-D: [batch, dimension]")
        if features.dtype not in LENGTH_TOLERANCE:
            raise InputError(f"{name} has dtype {features.dtype}, but must be a floating dtype of 16 to 64 bits")
    one, other = named
    if first.shape != second.shape:
        raise InputError(
            f"{one} has shape {list(first.shape)} and {other} {list(second.shape)}, "
            "but they must be equal: row i of both is pair i"
        )
    if first.dtype != second.dtype or first.device != second.device:
        raise InputError(
            f"{one} is {first.dtype} on {first.device} and {other} {second.dtype} on {second.device}, "
            "but they must agree"
        )
    if first.shape[1] <= extra_columns:
        raise InputError(
            f"{one} has {first.shape[1]} columns, but must have more than {extra_columns}: the last are no features"
        )
    if values:
        for name, features in named.items():
            _check_finite(name, features)
            if unit_length:
                _check_unit_length(name, features[:, : features.shape[1] - extra_columns])


def check_rows(rows: Tensor | None, batch: int, *, values: bool) -> Tensor:
    """int64 [B]; with `values`, none below 0."""
    if rows is None:
        raise InputError("rows is None, but this loss keeps state: pass the row of each pair, int64 [batch]")
    _check_tensor("rows", rows)
    if rows.dtype != torch.int64:
        raise InputError(f"rows has dtype {rows.dtype}, but must be torch.int64")
    if rows.shape != (batch,):
        raise InputError(f"rows has shape {list(rows.shape)}, but must be [{batch}]: one row per pair")
    if values and batch and int(rows.min()) < 0:
        raise InputError(f"rows has a minimum of {int(rows.min())}, but rows are positions in the state: 0 or more")
    return rows


def check_state(
    name: str, state: SampleState | None, columns: tuple[str, ...], samples: int, *, values: bool
) -> SampleState:
    """All columns that the loss keeps, one entry per sample; with `values`, finite, and τ above 0 once visited."""
    if state is None:
        raise InputError(
            f"{name} is None, but this loss keeps {', '.join(columns)}: read it from the store, or start from "
            f"loss.initial_{name}(…)"
        )
    if not isinstance(state, SampleState):
        raise InputError(f"{name} is a {type(state).__name__}, but must be a SampleState")
    missing = [column for column in columns if column not in state.columns]
    if missing:
        raise InputError(f"{name} lacks {', '.join(missing)}; it has {', '.join(state.columns) or 'no columns'}")
    for column, tensor in (*((c, state.columns[c]) for c in columns), ("visits", state.visits)):
        if tensor.shape != (samples,):
            raise InputError(f"{name}: {column} has shape {list(tensor.shape)}, but must be [{samples}]")
        if values and column != "visits":
            _check_column(f"{name}: {column}", tensor, state.visits > 0)
    return state


def check_logit_scale(loss: str, logit_scale: Tensor | None, *, values: bool) -> Tensor:
    """One number in a tensor; with `values`, above 0."""
    if logit_scale is None:
        raise InputError(f"logit_scale is None, but {loss} multiplies its similarities by it: pass the model's")
    _check_tensor("logit_scale", logit_scale)
    if logit_scale.numel() != 1:
        raise InputError(f"logit_scale has shape {list(logit_scale.shape)}, but must be one number")
    if values and not 0 < float(logit_scale.detach()) < float("inf"):
        raise InputError(f"logit_scale is {float(logit_scale.detach()):g}, but must be finite and above 0")
    return logit_scale


def check_batch(pairs: int) -> None:
    """A contrast needs at least one other pair."""
    if pairs < 2:
        raise InputError(f"the global batch is {pairs}, but must be 2 or more: a pair has no negatives otherwise")


def _check_tensor(name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise InputError(f"{name} is a {type(value).__name__}, but must be a torch.Tensor")


def _check_column(name: str, values: Tensor, visited: Tensor) -> None:
    bad = visited & ~torch.isfinite(values)
    if name.endswith("temperature"):
        bad |= visited & (values <= 0)
    if bool(bad.any()):
        position = int(bad.nonzero()[0])
        raise InputError(
            f"{name} is {float(values[position]):g} at position {position}, but must be finite, and a temperature "
            "above 0: the state is damaged, or of another loss"
        )


def _check_finite(name: str, features: Tensor) -> None:
    if not bool(torch.isfinite(features).all()):
        bad = int((~torch.isfinite(features).all(dim=1)).sum())
        raise InputError(f"{name} is not finite in {bad} of {features.shape[0]} rows, but must be finite")


def _check_unit_length(name: str, features: Tensor) -> None:
    error = float((features.double().norm(dim=1) - 1).abs().max()) if features.numel() else 0.0
    tolerance = LENGTH_TOLERANCE[features.dtype]
    if error > tolerance:
        raise InputError(
            f"{name} has a row whose length differs from 1 by {error:.3g}, but at most {tolerance:g} is allowed: "
            "normalise the features (torch.nn.functional.normalize)"
        )
