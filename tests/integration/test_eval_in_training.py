"""`--eval-suite` on rank 0: logged, and without any effect on the training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from isogclr.cli import main
from support.evaluation_data import pairs, write_retrieval_copy
from support.micro_run import arguments, metrics, run, weights, write_model
from support.shard_writing import write_noise_shards


def test_the_suite_is_measured_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_noise_shards(tmp_path / "shards", [16, 16])
    model = write_model(tmp_path / "model", dropout=0.1)
    write_retrieval_copy(tmp_path / "data" / "emoji", pairs(12, (2,)))
    suite: dict[str, Any] = {
        "eval_suite": "paper",
        "eval_dataset": ["emoji"],
        "eval_data_root": tmp_path / "data",
        "eval_every_n_epochs": 2,
        "report_to": "tensorboard",
    }
    for name, flags in (("with", suite), ("without", {})):
        run(arguments(model, data, tmp_path / "logs", name, epochs=3, **flags), tmp_path, ranks=2)
    runs = tmp_path / "logs"
    found, expected = weights(runs / "with", 3), weights(runs / "without", 3)
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    name = "emoji/image_retrieval_recall@1"
    measured = {record["epoch"]: record[name] for record in metrics(runs / "with", "val") if name in record}
    assert set(measured) == {2, 3}  # every second epoch, and after the last
    events = EventAccumulator(str(runs / "with" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars(f"val/{name}")] == [2, 3]
    checkpoint, root = runs / "with" / "checkpoints" / "epoch_3.pt", str(tmp_path / "data")
    flags = ["--data-root", root, "--dataset", "emoji", "--output", str(tmp_path / "out"), "--quiet"]
    assert main(["eval", "--checkpoint", str(checkpoint), *flags]) == 0
    table = capsys.readouterr().out
    assert f"{100 * measured[3]:.2f}" in table


def test_missing_data_is_said_before_training(tmp_path: Path) -> None:
    data = write_noise_shards(tmp_path / "shards", [16])
    model = write_model(tmp_path / "model")
    line = arguments(model, data, tmp_path / "logs", "a", eval_suite="paper", eval_data_root=tmp_path / "nowhere")
    job = run(line, tmp_path, expected=1)
    assert "nowhere" in job.text
    assert "Start epoch" not in job.text
