"""Nodes that do not fit together: all ranks end soon, with one message."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from slurm.cluster import NODES, Slurm
from slurm.training_job import Place

SECOND = NODES[1]


@pytest.mark.slow
def test_other_packages_on_another_node(slurm: Slurm, tmp_path: Path) -> None:
    """The interpreter of the second node finds another numpy first."""
    place = Place.create(slurm, tmp_path, [24] * 2)
    metadata = tmp_path / "other" / "numpy-0.0.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/bash\n[[ "$SLURMD_NODENAME" != {SECOND} ]] || export PYTHONPATH={tmp_path}/other:$PYTHONPATH\n'
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    job = place.submit("run", environment={"ISOGCLR_PYTHON": str(python)})
    assert job.wait() == ("FAILED", "1:0"), job.text
    assert job.text.count("found other package versions than those of rank 0") == 1
    assert "numpy 0.0.1 (not " in job.text
    assert "not requeued" in job.text


@pytest.mark.slow
def test_a_node_that_can_not_resolve_the_first(slurm: Slurm, tmp_path: Path) -> None:
    """The first node finds nothing wrong, and would wait for the other one for half an hour."""
    if not slurm.has_namespaces:
        pytest.skip("namespaces are not allowed here: all nodes share one /etc/hosts")
    place = Place.create(slurm, tmp_path, [24] * 2)
    with slurm.without_names(SECOND):
        job = place.submit("run", environment={"ISOGCLR_NAME_WAIT": "1", "ISOGCLR_WAIT": "5"})
        state, _ = job.wait()
    assert state == "FAILED", job.text
    assert job.text.count(f"{SECOND}: found no address for MASTER_ADDR={NODES[0]} within 1 s") == 1, job.text
    assert "Traceback" not in job.text
