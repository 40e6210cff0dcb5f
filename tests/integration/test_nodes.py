"""Two nodes, as far as one machine has them: stores of their own, and what they must agree on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from isogclr.state import generations
from isogclr.state.filesystem import network_file_system
from support.micro_run import Job, arguments, run, write_model
from support.shard_writing import write_noise_shards


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that counts as a network one: FUSE, as sshfs or ceph-fuse."""
    if shutil.which("bindfs") is None or not Path("/dev/fuse").exists():
        pytest.skip("no bindfs or no /dev/fuse here, to mount a file system that is not local")
    (tmp_path / "source").mkdir()
    folder = tmp_path / "shared"
    folder.mkdir()
    mounted = subprocess.run(["bindfs", str(tmp_path / "source"), str(folder)], capture_output=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"bindfs may not mount here: {mounted.stderr.decode()}")
    try:
        assert network_file_system(folder) in ("fuse", "fuse.bindfs")
        yield folder
    finally:
        subprocess.run(["fusermount", "-u", str(folder)], check=True)


def on_two_nodes(line: list[str], folder: Path, expected: int = 0, **environment: str) -> Job:
    return run(line, folder, ranks=2, expected=expected, module="saboteurs.per_node", environment=environment)


def test_a_run_on_a_shared_file_system_keeps_its_stores_in_local_scratch(
    tmp_path: Path, shared: Path, model: str
) -> None:
    data = write_noise_shards(tmp_path / "data", [16] * 2)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    line = arguments(model, data, shared / "logs", "run", loss="isogclr", isogclr_rho=1.0)
    on_two_nodes(line, tmp_path, SLURM_TMPDIR=str(scratch))
    assert generations(shared / "logs" / "run" / "checkpoints" / "generations")
    assert not (shared / "logs" / "run" / "state").exists()
    (folder,) = scratch.glob("isogclr-*/run-*")  # was used, and is left without the stores
    assert not list(folder.glob("*.live"))


def test_a_store_on_a_shared_file_system_is_refused(tmp_path: Path, shared: Path, model: str) -> None:
    data = write_noise_shards(tmp_path / "data", [16] * 2)
    line = arguments(model, data, tmp_path / "logs", "run", isogclr_state_dir=shared / "node-@NODE@")
    job = on_two_nodes(line, tmp_path, expected=1)
    assert job.text.count("found the state store on a network file system") == 2, (
        job.text
    )  # one message, both nodes
    assert job.text.count("| ERROR |") == 1
    assert f"{shared}/node-1 (fuse" in job.text


def test_different_shards_on_two_nodes(tmp_path: Path, model: str) -> None:
    for node, seed in (("0", 0), ("1", 1)):
        write_noise_shards(tmp_path / f"data-{node}", [16] * 2 if seed == 0 else [16, 8])
    data = str(tmp_path / "data-@NODE@" / "shard-{000..001}.tar")
    line = arguments(model, data, tmp_path / "logs", "run", index=tmp_path / "index-@NODE@")
    job = on_two_nodes(line, tmp_path, expected=1)
    assert job.text.count("ranks have different shard indexes") == 1, job.text
    assert job.text.count("| ERROR |") == 1


@pytest.mark.parametrize("node", ["0", "1"])
def test_a_store_that_differs_is_never_published(tmp_path: Path, model: str, node: str) -> None:
    data = write_noise_shards(tmp_path / "data", [16] * 2)
    line = arguments(model, data, tmp_path / "logs", "run", loss="isogclr", isogclr_rho=1.0)
    job = on_two_nodes(line, tmp_path, expected=1, DAMAGE_NODE=node)
    assert job.text.count("found different state stores on 2 nodes at a commit") == 1, job.text
    assert "node 1 (" in job.text  # of two, nobody can say who is right: node 1 differs from node 0
    assert "differs in rows 0 to 31" in job.text
    assert generations(tmp_path / "logs" / "run" / "checkpoints" / "generations") == []
    assert not list((tmp_path / "logs" / "run" / "checkpoints").glob("*.pt"))
