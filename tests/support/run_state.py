"""What a run has come to: everything that its last commit holds, to be compared bit for bit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isogclr.shard_index import ShardIndex
from isogclr.state import STORE_SNAPSHOT, Snapshot, latest
from isogclr.state.schema import Values
from support.micro_run import metrics


@dataclass(frozen=True)
class RunState:
    """The content of a generation."""

    path: Path
    checkpoint: dict[str, Any]
    training: dict[str, Any]
    rows: Values


def last_commit(run_folder: Path) -> RunState:
    """The newest generation, every file of it compared with its checksum."""
    generation = latest(run_folder / "checkpoints" / "generations")
    assert generation is not None, f"{run_folder} has no generation"
    generation.verify()
    checkpoint = torch.load(generation.path / "checkpoint.pt", map_location="cpu", weights_only=True)
    training = json.loads((generation.path / "training.json").read_text(encoding="utf-8"))
    return RunState(generation.path, checkpoint, training, read_rows(generation.path / STORE_SNAPSHOT))


def read_rows(path: Path) -> Values:
    """All rows of a snapshot."""
    with Snapshot(path) as snapshot:
        rows = np.zeros(snapshot.header.rows, snapshot.header.schema.dtype)
        for first, values in snapshot.visited():
            rows[first : first + len(values)] = values
    return rows


def assert_same_end(found: Path, expected: Path) -> None:
    """Two runs have come to the same: parameters, optimizer, scaler, generators, store, and every logged loss."""
    one, other = last_commit(found), last_commit(expected)
    differences = _differences(_comparable(one), _comparable(other), "")
    assert not differences, f"{found} is not {expected}: {differences[:10]}"
    assert one.rows.dtype == other.rows.dtype
    assert one.rows.tobytes() == other.rows.tobytes(), _first_row(one.rows, other.rows)
    assert losses(found) == losses(expected)
    files = [sorted(path.name for path in (run / "checkpoints").glob("*.pt")) for run in (found, expected)]
    assert files[0] == files[1]


def losses(run_folder: Path) -> dict[int, tuple[float, float]]:
    """Loss and learning rate of every step, as the last attempt at it has logged them."""
    return {record["step"]: (record["loss"], record["lr"]) for record in metrics(run_folder, "train")}


def state_by_sample(run_folder: Path, index: Path | None = None) -> dict[tuple[str, str], bytes]:
    """The state of every sample by (shard, key)."""
    found = ShardIndex.load(run_folder / "index" if index is None else index)
    rows = last_commit(run_folder).rows
    return {tuple(place): rows[row].tobytes() for row, place in enumerate(found.locate(range(len(rows))))}


def _comparable(state: RunState) -> dict[str, Any]:
    """Without what names the run or the commit, and without the rollbacks that have led there."""
    checkpoint = {name: value for name, value in state.checkpoint.items() if name != "name"}
    facts = {name: value for name, value in checkpoint["isogclr"].items() if name != "commit"}
    training = {name: value for name, value in state.training.items() if name != "rollbacks"}
    return {"checkpoint": {**checkpoint, "isogclr": facts}, "training": training}


def _differences(one: Any, other: Any, where: str) -> list[str]:
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return [] if same and one.numpy().tobytes() == other.numpy().tobytes() else [where]
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            return [f"{where}: {sorted(map(str, set(one) ^ set(other)))}"]
        return [path for key in one for path in _differences(one[key], other[key], f"{where}/{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [path for place, (a, b) in pairs for path in _differences(a, b, f"{where}/{place}")]
    return [] if one == other else [f"{where}: {str(one)[:80]} ≠ {str(other)[:80]}"]


def _first_row(one: Values, other: Values) -> str:
    assert len(one) == len(other)
    row = int(np.flatnonzero(one != other)[0])
    return f"row {row}: {one[row]} ≠ {other[row]}"
