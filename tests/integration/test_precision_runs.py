"""Mixed precision: a step that the scaler leaves out leaves the state of its samples alone."""

from __future__ import annotations

from pathlib import Path

import torch

from support.micro_run import arguments, run, stored, write_model
from support.shard_writing import write_noise_shards


def test_state_is_written_only_for_steps_that_were_taken(tmp_path: Path) -> None:
    """The scale of a new GradScaler, 65536, is too large for fp16 here or not; some steps are made to overflow."""
    data = write_noise_shards(tmp_path / "data", [16] * 2)
    line = arguments(
        write_model(tmp_path / "model"),
        data,
        tmp_path / "logs",
        "amp",
        loss="isogclr",
        isogclr_rho=1.0,
        precision="amp",
        max_bad_steps=1,  # what a scaler leaves out is not divergence
    )
    run(line, tmp_path, module="saboteurs.overflowing")
    visits = stored(tmp_path / "logs" / "amp")["visits"]
    assert sorted(visits.tolist()) == [0] * 16 + [1] * 16  # 4 steps of 8, of which the 2nd and 4th overflow
    content = torch.load(tmp_path / "logs" / "amp" / "checkpoints" / "epoch_1.pt", weights_only=True)
    assert content["scaler"]["scale"] == 65536.0 / 4
