"""`isogclr demo`, as a user starts it, for one epoch with each loss."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("isogclr")


@pytest.mark.slow
@pytest.mark.timeout(600)  # two trainings and a report, on a machine that may have other things to do
def test_the_demo_trains_compares_and_reports(tmp_path: Path) -> None:
    """One epoch is far from enough to learn much; but chance at 10 is 0.63 %."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [COMMAND, "demo", "--epochs", "1", "--output", str(tmp_path / "demo")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path, timeout=560
    )
    assert done.returncode == 0, done.stderr
    lines = re.findall(r"--loss (\w+) +((?:[\d.]+ *){6})$", done.stdout, flags=re.MULTILINE)
    assert [loss for loss, _ in lines] == ["isogclr", "clip"]
    for _, values in lines:
        recall = [float(value) for value in values.split()]
        assert recall == [*sorted(recall[:3]), *sorted(recall[3:])]
        assert recall[2] + recall[5] > 3 * 0.63
    assert "\r" not in done.stderr  # no terminal: a line every ten seconds
    progress = [line for line in done.stderr.splitlines() if line.startswith("training ")]
    assert 1 <= len(progress) <= 56
    page = Path(done.stdout.strip().splitlines()[-1].removeprefix("The report: "))
    assert page.is_file()
    assert "isogclr" in page.read_text(encoding="utf-8")


def test_a_wrong_command_is_refused() -> None:
    done = subprocess.run([COMMAND, "dmeo"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'dmeo'" in done.stderr
