"""One cluster for all tests of this folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from slurm.cluster import Slurm, cluster, missing_programs, namespaces_allowed


@pytest.fixture(scope="session")
def slurm() -> Iterator[Slurm]:
    """A running cluster. SLURM_TEST_NETWORK=loopback does without namespaces where they are allowed."""
    missing = missing_programs()
    if missing:
        message = (
            f"no {', '.join(missing)}: needs Debian's slurm-wlm and munge (.ci/run installs them where it may)"
        )
        if os.environ.get("ISOGCLR_REQUIRE_SLURM"):
            pytest.fail(message)
        pytest.skip(message)
    loopback = os.environ.get("SLURM_TEST_NETWORK") == "loopback" or not namespaces_allowed()
    folder = Path(tempfile.mkdtemp(prefix="isog", dir="/tmp"))  # short: the path of a socket has 107 characters
    try:
        with cluster(folder, has_namespaces=not loopback) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)
