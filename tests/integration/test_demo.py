"""`isogclr demo`, as a user starts it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = Path(sys.executable).with_name("isogclr")


@pytest.mark.slow
def test_the_demo_shows_what_the_paper_claims() -> None:
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    done = subprocess.run([COMMAND, "demo"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    recall = re.search(r"R@1: ([\d.]+) %", done.stdout)
    assert recall is not None
    assert float(recall[1]) > 80
    rows = re.findall(r"^ +\d+ to \d+ +\d+ +([\d.]+) +([\d.]+)$", done.stdout, flags=re.MULTILINE)
    assert len(rows) == 4
    for rare, frequent in zip(rows[0], rows[-1], strict=True):
        assert float(frequent) > 1.3 * float(rare)


def test_a_wrong_command_is_refused() -> None:
    done = subprocess.run([COMMAND, "dmeo"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'dmeo'" in done.stderr
