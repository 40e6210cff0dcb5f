"""docs/slurm.md against the code: sizes, the formula of the exchange, variables and messages that it names."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.micro_run import arguments, metrics, run, write_model
from support.shard_writing import write_noise_shards

REPOSITORY = Path(__file__).resolve().parents[3]
PAGE = (REPOSITORY / "docs" / "slurm.md").read_text(encoding="utf-8")


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("sizes", REPOSITORY / "scripts" / "sizes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "sizes", module)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_script(sizes: Any) -> None:
    for table in sizes.tables().split("\n\n"):
        assert table in PAGE, f"docs/slurm.md is out of date; python scripts/sizes.py prints:\n{table}"


def test_the_script_knows_the_size_of_real_files(sizes: Any, tmp_path: Path) -> None:
    from isogclr.state import StateStore  # noqa: PLC0415

    with StateStore.create(tmp_path / "x.live", sizes.SCHEMA, 5000, "f") as store:
        store.commit(tmp_path / "x.snapshot")
    header = sizes.store_header(5000)
    assert (tmp_path / "x.live").stat().st_size == header.live_bytes
    assert (tmp_path / "x.snapshot").stat().st_size == header.snapshot_bytes


def test_the_formula_gives_the_bytes_that_are_counted(sizes: Any, tmp_path: Path) -> None:
    """W = 3, b = 8, C = 6, at the collectives of a real run."""
    model, data = write_model(tmp_path / "model"), write_noise_shards(tmp_path / "data", [24] * 3)
    line = arguments(model, data, tmp_path / "logs", "run", loss="isogclr", isogclr_rho=1.0, log_every_n_steps=2)
    start = time.monotonic()
    run(line, tmp_path, ranks=3)
    elapsed = time.monotonic() - start
    assert "**(W − 1) · (b + 1) · 4 · (C + 3)**" in PAGE
    expected = (3 - 1) * (8 + 1) * 4 * (6 + 3)
    assert sizes.exchange_bytes(3, 8) == expected
    lines = metrics(tmp_path / "logs" / "run", "train")
    assert [line["exchange_bytes"] for line in lines] == [expected] * len(lines)
    waits = [line["exchange_wait_seconds"] for line in lines]
    assert len(waits) > 1
    assert waits[0] == 0  # nothing was sent before the first step
    assert min(waits[1:]) > 0
    assert sum(waits) < elapsed


def named(pattern: str) -> set[str]:
    """What the page says that matches; a page that says nothing of the kind is another page."""
    found = set(re.findall(pattern, PAGE))
    assert found, pattern
    return found


def test_variables_and_messages_exist() -> None:
    launcher = (REPOSITORY / "scripts" / "slurm" / "launch.sh").read_text(encoding="utf-8")
    scripts = launcher + "".join(path.read_text() for path in (REPOSITORY / "scripts" / "slurm").glob("*.sbatch"))
    for variable in named(r"\b(?:ISOGCLR_[A-Z_]+|GLOBAL_BATCH|TRAIN_DATA|LOGS|NAME)\b"):
        assert f"{variable}:=" in scripts, variable
    source = "".join(path.read_text(encoding="utf-8") for path in (REPOSITORY / "src" / "training").rglob("*.py"))
    for message in named(r"`((?:found|ranks have) [^`]*)`"):
        assert message.replace("`", "") in source, message
    for name in named(r"`((?:exchange|store)_\w+)`"):
        assert name in source, name
