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


def test_a_resume_with_another_rho(folder: Path, tmp_path: Path) -> None:
    """It goes on, and the log says that it goes on otherwise."""
    data = str(folder / "data" / "shard-000.tar")
    for rho, epochs, said in ((6.0, 1, 0), (7.5, 2, 1)):
        flags = {"loss": "isogclr", "isogclr_rho": rho, "epochs": epochs, "resume": "latest"}
        text = run(arguments("isogclr-tiny", data, tmp_path / "logs", "a", **flags), tmp_path).text
        assert text.count("rho of --loss isogclr has changed at this resume: 6.0 → 7.5") == said
        assert text.count("has changed at this resume") == said


def test_a_start_that_fails_does_not_use_up_the_name(folder: Path, tmp_path: Path) -> None:
    """The same name, with the mistake mended: too many data workers for one shard, and another data set."""
    write_noise_shards(tmp_path / "other", [16], seed=1, prefix="other")
    line = arguments("isogclr-tiny", str(tmp_path / "other" / "other-000.tar"), tmp_path / "logs", "a", workers=3)
    assert "the name can be used again" in run(line, tmp_path, expected=1).text
    kept = tmp_path / "logs" / "a" / "failed-start-1" / "out.log"
    assert "names 1 shards for" in kept.read_text(encoding="utf-8")
    run(arguments("isogclr-tiny", str(folder / "data" / "shard-000.tar"), tmp_path / "logs", "a"), tmp_path)
