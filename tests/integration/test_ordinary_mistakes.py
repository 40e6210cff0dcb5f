"""What only a real run shows of an ordinary mistake: the exit code, and one line without a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.micro_run import arguments, run
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
