"""Two nodes of two tasks on a real Slurm, by the shipped sbatch file, against one process with the same batches."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from isogclr.state import schema_for
from saboteurs.recording import recorded
from slurm.cluster import Slurm
from slurm.training_job import Place
from support.micro_run import metrics, stored, weights
from support.one_process import train_in_one_process

RANKS, BATCH, COLUMNS = 4, 8, 6


@pytest.mark.slow
def test_two_nodes_equal_one_process(slurm: Slurm, tmp_path: Path) -> None:
    place = Place.create(slurm, tmp_path, [24] * 4)
    job = place.submit("nodes", nodes=2, tasks=2, global_batch=RANKS * BATCH, save_every_n_steps=2)
    assert job.wait() == ("COMPLETED", "0:0"), job.text

    folder = place.run_folder("nodes")
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    rows = recorded(tmp_path, RANKS)
    model, store = train_in_one_process(arguments, folder / "index", RANKS, rows)
    found = weights(folder, epoch=2)
    for name, value in model.bare.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=2e-5, atol=2e-5, msg=lambda m, n=name: f"{n}: {m}")
    state, expected = stored(folder), store.read(np.arange(store.rows))
    for name in store.schema.state_columns:
        np.testing.assert_allclose(state[name], expected[name], rtol=1e-4, atol=1e-4, err_msg=name)
    assert (state["visits"] == 2).all()
    assert (state["last_epoch"] == 2).all()

    # One store a node, and they are equal: compared at every commit, and here byte by byte.
    live = sorted((folder / "state").glob("*.live"))
    assert [path.name for path in live] == ["node-00000.live", "node-00001.live"]
    first, second = (path.read_bytes()[8192:] for path in live)
    assert first == second
    assert any(first)

    # The formula of docs/data_flow.md and docs/slurm.md, counted at the collectives; and its time is reported.
    schema = schema_for(store.schema.state_columns)
    assert len(schema.state_columns) == COLUMNS
    for line in metrics(folder, "train"):
        assert line["exchange_bytes"] == (RANKS - 1) * (BATCH + 1) * 4 * (COLUMNS + 3)
        assert 0 <= line["exchange_wait_seconds"] < 60
