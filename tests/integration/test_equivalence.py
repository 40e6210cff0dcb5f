"""The same samples in other portions: micro-batches, ranks. Parameters and state must not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isogclr.state import Schema, schema_for
from isogclr.state.schema import Values
from saboteurs.recording import recorded
from support.micro_run import arguments, metrics, run, stored, weights, write_model
from support.one_process import train_in_one_process
from support.shard_writing import write_noise_shards

TEMPERATURES = {"isogclr_rho": 1.0, "isogclr_temperature_init": 0.1, "isogclr_temperature_rate": 0.01}
# The gradient of a key's bias is exactly 0; Adam would blow its rounding errors up to whole steps.
EPS = 1e-4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


def assert_same_state(found: Values, expected: Values, schema: Schema, tolerance: float) -> None:
    for name in schema.names:
        if name in schema.state_columns:
            np.testing.assert_allclose(found[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)
        else:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def assert_same_weights(
    found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], tolerance: float
) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name], value, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


@pytest.mark.parametrize("loss", ["isogclr", "clip"])
def test_accumulation_equals_one_large_batch(tmp_path: Path, model: str, loss: str) -> None:
    """`--accum-freq 4 --batch-size 16` against `--batch-size 64`, 5 steps."""
    data = write_noise_shards(tmp_path / "data", [80, 160, 80])
    flags: dict[str, Any] = {"loss": loss, "epochs": 1, "eps": EPS, **(TEMPERATURES if loss == "isogclr" else {})}
    folders = []
    for batch, accumulation in ((64, 1), (16, 4)):
        name = f"b{batch}"
        line = arguments(model, data, tmp_path / "logs", name, batch_size=batch, accum_freq=accumulation, **flags)
        run(line, tmp_path)
        folders.append(tmp_path / "logs" / name)
    whole, parts = folders
    assert len(metrics(whole, "train")) == len(metrics(parts, "train")) == 5
    state, expected = stored(parts), stored(whole)
    assert (state["visits"] == 1).all()
    assert_same_weights(weights(parts), weights(whole), 1e-5)
    columns = tuple(name for name in expected.dtype.names if name not in ("visits", "last_epoch"))
    assert_same_state(state, expected, schema_for(columns), 1e-4)


@pytest.mark.parametrize(
    ("ranks", "flags"),
    [
        pytest.param(2, {}, id="2-ranks"),
        pytest.param(4, {}, id="4-ranks"),
        pytest.param(2, {"accum_freq": 2}, id="accumulation"),
        pytest.param(2, {"isogclr_temperature_optimizer": "adam"}, id="adam"),
        pytest.param(2, {"isogclr_temperature_scope": "global"}, id="global"),
        pytest.param(2, {"dataset_resampled": True}, id="duplicates"),
        pytest.param(2, {"grad_clip_norm": 0.01, "isogclr_gamma_schedule": "cosine"}, id="clipping-cosine"),
    ],
)
def test_ranks_equal_one_process(tmp_path: Path, model: str, ranks: int, flags: dict[str, Any]) -> None:
    """The rows of every step are recorded; one process that is fed the same batches ends with the same parameters
    and the same store."""
    data = write_noise_shards(tmp_path / "data", [24] * 4)
    line = arguments(
        model, data, tmp_path / "logs", "ranks", loss="isogclr", epochs=2, eps=EPS, **TEMPERATURES, **flags
    )
    run(line, tmp_path, ranks=ranks, module="saboteurs.recording", environment={"RECORD_FOLDER": str(tmp_path)})
    rows = recorded(tmp_path, ranks)
    folder = tmp_path / "logs" / "ranks"
    expected_model, store = train_in_one_process(line, folder / "index", ranks, rows)
    assert_same_weights(weights(folder, epoch=2), dict(expected_model.bare.state_dict()), 2e-5)
    assert_same_state(stored(folder), store.read(np.arange(store.rows)), store.schema, 1e-4)
    if "dataset_resampled" not in flags:
        seen = {row for rank in rows for step in rank for row in step}
        assert len(seen) == 96  # shards move between ranks; together the ranks have seen all samples


def test_the_shard_order_changes_with_the_epoch(tmp_path: Path, model: str) -> None:
    """A known mistake: with a frozen order the same samples always meet."""
    data = write_noise_shards(tmp_path / "data", [16] * 4)
    line = arguments(model, data, tmp_path / "logs", "order", epochs=2)
    run(line, tmp_path, ranks=2, module="saboteurs.recording", environment={"RECORD_FOLDER": str(tmp_path)})
    rows = recorded(tmp_path, 2)
    steps = len(rows[0]) // 2
    first, second = ({row for step in part for row in step} for part in (rows[0][:steps], rows[0][steps:]))
    assert len(first) == len(second) == 32
    assert first != second
