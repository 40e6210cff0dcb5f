"""What only a real run shows of an ordinary mistake: the exit code, and one line without a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.micro_run import arguments, run, write_model
from support.shard_writing import write_noise_shards


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    write_noise_shards(folder / "data", [16])
    (folder / "cut.pt").write_bytes(b"PK\x03\x04 and no more")
    (folder / "no-checkpoint.pt").write_bytes(b"hello, world")
    return folder


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ({"lr": "nan", "device": "gpu"}, 2, ["--lr is nan", "--device is gpu"]),
        ({"logs": "/proc/no/such"}, 1, ["found no place for the run", "choose another --logs"]),
        ({"pretrained": "{folder}/cut.pt"}, 1, ["cut.pt: found a file that torch can not load", "fetch it again"]),
        ({"pretrained": "{folder}/no-checkpoint.pt"}, 1, ["found a file that torch can not load"]),
    ],
    ids=["numbers", "logs", "cut short", "no checkpoint"],
)
def test_one_line(flags: dict[str, Any], code: int, words: list[str], folder: Path, tmp_path: Path) -> None:
    given = {flag: value.format(folder=folder) for flag, value in flags.items()}
    logs, data = given.pop("logs", tmp_path / "logs"), str(folder / "data" / "shard-000.tar")
    text = run(arguments("isogclr-tiny", data, logs, "a", **given), tmp_path, expected=code).text
    assert "Traceback" not in text
    assert "weights_only" not in text.partition("ERROR")[2]
    for word in words:
        (line,) = [line for line in text.splitlines() if word in line]
        assert code == 2 or "ERROR" in line


def test_a_resume_with_another_rho(tmp_path: Path) -> None:
    """It goes on, and the log says that it goes on otherwise."""
    model, data = write_model(tmp_path / "model"), write_noise_shards(tmp_path / "data", [16])
    for rho, epochs, said in ((6.0, 1, 0), (7.5, 2, 1)):
        flags = {"loss": "isogclr", "isogclr_rho": rho, "epochs": epochs, "resume": "latest"}
        text = run(arguments(model, data, tmp_path / "logs", "a", **flags), tmp_path).text
        assert text.count("rho of --loss isogclr has changed at this resume: 6.0 → 7.5") == said
        assert text.count("has changed at this resume") == said
