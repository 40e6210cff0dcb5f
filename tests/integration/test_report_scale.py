"""Reports over many rows and many classes: bounded memory, a small page, and the sampling is stated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isogclr.state import STORE_SNAPSHOT, StateStore, schema_for, write_generation
from support.store_cases import ISOGCLR

ROWS = 10_000_000
CHUNK = 1_000_000
MEMORY_LIMIT_BYTES = 300_000_000  # a third of what a report may take; the store alone has 320 MB
CLASS_MEMORY_LIMIT_BYTES = 200_000_000  # of which numpy, matplotlib and jinja2 have 75
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


PICTURES, CLASSES = 1_300_000, 8_142  # as many as ImageNet has, and as many as iNaturalist
MAKE_CLASSES = f"""
import numpy as np
from isogclr.report import make
from isogclr.report.row_classes import make_labels
from isogclr.report.run_data import RunData

def open_data(run, moved_to, opened):
    labels = np.minimum(np.arange({PICTURES}) ** 2 // ({PICTURES} ** 2 // {CLASSES}), {CLASSES} - 1)
    return RunData(None, make_labels(labels, tuple(f"species {{one}}" for one in range({CLASSES}))))

make.open_data = open_data
{MAKE}"""


@pytest.mark.slow
def test_thousands_of_classes(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    options = {"temperature_min": 0.05, "temperature_max": 1.0}
    config = {"loss": "isogclr", "loss_config": options, "kind": "unimodal", "directions": ["image"]}
    (run / "config.json").write_text(json.dumps(config), encoding="utf-8")
    schema = schema_for(("image_temperature", "image_log_mean", "image_momentum"))
    values = schema.zeros(PICTURES)
    values["image_temperature"] = np.random.default_rng(0).lognormal(-1.5, 0.3, PICTURES).clip(0.05, 1)
    values["visits"] = values["last_epoch"] = 1
    with (
        StateStore.create(run / "live", schema, PICTURES, "fingerprint") as store,
        write_generation(run / "checkpoints" / "generations", step=1) as folder,
    ):
        store.write(np.arange(PICTURES), values, step=1)
        store.commit(folder / STORE_SNAPSHOT)
    command = [sys.executable, "-c", MAKE_CLASSES, str(run), str(tmp_path / "out")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    peak = int(done.stdout.split()[-1])
    assert peak < CLASS_MEMORY_LIMIT_BYTES, f"{peak:,} bytes"
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < PAGE_LIMIT_BYTES / 2
    assert "8,142 classes have visited pictures; the table shows the 8 hottest and the 8 coldest" in page
    assert "the 2,714 smallest" in page
    assert page.count('<tr><th scope="row"><span class="mark">') == 3 + 2 * 8
    lines = (tmp_path / "out" / "data" / "classes.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + CLASSES


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
