"""torchrun with two agents, as on two nodes: stopped by SIGTERM, and started again."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.micro_run import arguments, stored, write_model
from support.shard_writing import write_noise_shards

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 180
SHOWN_CHARACTERS = 4000


def agents(line: list[str], folder: Path, **environment: str) -> list[subprocess.Popen[bytes]]:
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
    torchrun = Path(sys.executable).with_name("torchrun")
    assert torchrun.exists() or shutil.which("torchrun")
    variables = {
        **os.environ,
        "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY / 'tests'}",
        "RECORD_FOLDER": str(folder),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    options = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port)]
    started = []
    for node in range(2):
        with (folder / f"agent-{node}.txt").open("ab") as output:
            command = [str(torchrun), *options, "--node-rank", str(node), "-m", "--", "saboteurs.recording", *line]
            started.append(subprocess.Popen(command, stdout=output, stderr=output, env=variables, cwd=folder))
    return started


def wait(processes: list[subprocess.Popen[bytes]]) -> list[int]:
    try:
        return [process.wait(WAIT_SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()


def said_by_all(folder: Path) -> str:
    """The ends of what the agents have printed: a failure is there, and CI shows only so much."""
    files = sorted(folder.glob("agent-*.txt"))
    return "\n".join(f"{path.name}: …{path.read_text()[-SHOWN_CHARACTERS:]}" for path in files)


@pytest.mark.slow
def test_two_agents_stop_and_go_on(tmp_path: Path) -> None:
    model, data = write_model(tmp_path / "model"), write_noise_shards(tmp_path / "data", [48] * 4)
    line = arguments(model, data, tmp_path / "logs", "run", loss="isogclr", isogclr_rho=1.0, resume="latest")
    processes = agents(line, tmp_path, STEP_SECONDS="0.5")
    record = tmp_path / "rank-0.jsonl"
    deadline = time.monotonic() + WAIT_SECONDS
    while not record.exists() or len(record.read_text().splitlines()) < 3:
        assert time.monotonic() < deadline, said_by_all(tmp_path)
        assert all(process.poll() is None for process in processes), said_by_all(tmp_path)
        time.sleep(0.1)
    for process in processes:
        process.send_signal(signal.SIGTERM)
    assert all(code != 0 for code in wait(processes))
    assert "Committed step" in (tmp_path / "agent-0.txt").read_text(), said_by_all(tmp_path)
    before = stored(tmp_path / "logs" / "run")
    assert 0 < (before["visits"] == 1).sum() < 192  # in the middle of the epoch

    assert wait(agents(line, tmp_path)) == [0, 0], said_by_all(tmp_path)
    assert (stored(tmp_path / "logs" / "run")["visits"] == 1).all()
    live = sorted((tmp_path / "logs" / "run" / "state").glob("*.live"))
    assert [path.name for path in live] == ["node-00000.live", "node-00001.live"]
    assert live[0].read_bytes()[8192:] == live[1].read_bytes()[8192:]
