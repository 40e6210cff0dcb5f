"""A report over ten million rows: bounded memory, a small page, and the sampling is stated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isogclr.state import STORE_SNAPSHOT, StateStore, write_generation
from support.store_cases import ISOGCLR

ROWS = 10_000_000
CHUNK = 1_000_000
MEMORY_LIMIT_BYTES = 300_000_000  # a third of what a report may take; the store alone has 320 MB
PAGE_LIMIT_BYTES = 10_000_000
MAKE = """
import sys
from pathlib import Path
from isogclr.cli import main
code = main(["report", sys.argv[1], "--output", sys.argv[2]])
# getrusage would count the memory of the process that started this one
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
sys.exit(code)
"""


@pytest.mark.slow
def test_ten_million_rows(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    config = {"loss": "isogclr", "loss_config": {"temperature_min": 0.005, "temperature_max": 1.0}}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_store(run)
    command = [sys.executable, "-c", MAKE, str(run), str(tmp_path / "out")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak = int(done.stdout.split()[-1])
    assert peak < MEMORY_LIMIT_BYTES, f"{peak:,} bytes"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < PAGE_LIMIT_BYTES
    assert "4,000 of 10,000,000 visited samples were drawn at random." in page
    assert "9,999,999" in page  # the row that was made the hottest


def write_store(run: Path) -> None:
    generator = np.random.default_rng(0)
    with (
        StateStore.create(run / "live", ISOGCLR, ROWS, "fingerprint") as store,
        write_generation(run / "checkpoints" / "generations", step=1) as folder,
    ):
        for first in range(0, ROWS, CHUNK):
            values = ISOGCLR.zeros(CHUNK)
            for side in ("image", "text"):
                values[f"{side}_temperature"] = generator.lognormal(-3, 0.3, CHUNK).clip(0.005, 0.9)
            values["visits"] = values["last_epoch"] = 1
            if first + CHUNK == ROWS:
                values["image_temperature"][-1] = 0.99
            store.write(np.arange(first, first + CHUNK), values, step=1 + first)
        store.commit(folder / STORE_SNAPSHOT)
