"""From `python -m training.main` to a table and an exported folder: real runs, with a Hugging Face text tower."""

from __future__ import annotations

import json
from pathlib import Path

import open_clip
import pytest
import torch

from isogclr.cli import main
from isogclr.models.checkpoints import load_model
from support.evaluation_data import pairs, write_retrieval_copy
from support.micro_run import arguments, run, weights, write_model
from support.shard_writing import write_noise_shards


@pytest.mark.slow
def test_runs_of_the_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two seeds and one run on two ranks, whose checkpoint holds the names of DistributedDataParallel."""
    data = write_noise_shards(tmp_path / "shards", [16, 16])
    model = write_model(tmp_path / "model")
    logs = tmp_path / "logs"
    for name, ranks, seed in (("a", 1, 0), ("b", 1, 1), ("c", 2, 2)):
        line = arguments(model, data, logs, name, loss="isogclr", isogclr_rho=1.0, seed=seed)
        run(line, tmp_path / "work", ranks=ranks)
    files = [logs / name / "checkpoints" / "epoch_1.pt" for name in "abc"]
    assert any(key.startswith("module.") for key in torch.load(files[2], weights_only=True)["state_dict"])
    write_retrieval_copy(tmp_path / "data" / "emoji", pairs(12, (2,)))
    flags = [
        "--data-root",
        str(tmp_path / "data"),
        "--dataset",
        "emoji",
        "--output",
        str(tmp_path / "out"),
        "--quiet",
    ]
    assert main(["eval", "--checkpoint", *map(str, files), *flags]) == 0
    table = capsys.readouterr().out
    assert "a/epoch_1 isogclr (2 seeds)" in table
    assert "c/epoch_1 isogclr " in table
    assert "± " in table
    found = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("emoji_*.json")]
    assert sorted(one["isogclr"]["identity"]["seed"] for one in found) == [0, 1, 2]
    assert {one["isogclr"]["identity"]["loss"] for one in found} == {"isogclr"}

    loaded = load_model(files[2])
    expected = weights(logs / "c")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in loaded.model.state_dict().items())
    assert main(["export", str(files[2]), str(tmp_path / "exported")]) == 0
    again, _, _ = open_clip.create_model_and_transforms(f"local-dir:{tmp_path / 'exported'}")
    tokens = open_clip.get_tokenizer(f"local-dir:{tmp_path / 'exported'}")(["small red", "large blue round"])
    assert torch.equal(tokens, loaded.tokenizer(["small red", "large blue round"]))
    with torch.no_grad():
        assert torch.equal(again.eval().encode_text(tokens), loaded.model.encode_text(tokens))
        assert not torch.equal(tokens[0], tokens[1])
