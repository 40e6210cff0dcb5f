"""The files for open_clip beside the commits: nobody who changes them damages a commit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from isogclr.distributed import Messages, Ranks
from isogclr.state import MemoryStore, latest, schema_for
from training import params
from training.commits.commit import Commits, RunFacts
from training.commits.rollback import Rollbacks
from training.ranks.node import Node
from training.steps.progress import Progress


class Run:
    """Commits of a run of one rank."""

    def __init__(self, folder: Path) -> None:
        settings = params.parse(["--train-data", "a.tar", "--epochs", "3", "--save-most-recent"])[0].run
        self.folder = folder
        node, facts, device = Node(0, 1, 0, True), RunFacts("name", {}), torch.device("cpu")
        self.commits = Commits(folder, settings, Messages(Ranks()), node, facts, device, Rollbacks())

    def end_epoch(self, epoch: int) -> None:
        content = {
            "state_dict": {"weight": torch.full((4,), float(epoch))},
            "optimizer": {"moments": torch.ones(99)},
        }
        store = MemoryStore.create(schema_for(()), 4, "fingerprint")
        self.commits.commit(
            Progress(epoch, epoch, steps_per_epoch=1), lambda: content, store, completed_epoch=epoch
        )

    def published(self) -> dict[str, float]:
        """Epochs of the files, by their weights."""
        return {path.name: read(path)["state_dict"]["weight"][0].item() for path in self.folder.glob("*.pt")}


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path)
    run.end_epoch(1)
    return run


def test_an_optimizer_stripped_in_place_leaves_the_commit_whole(run: Run) -> None:
    for name in ("epoch_1.pt", "epoch_latest.pt"):
        content = read(run.folder / name)
        del content["optimizer"]
        torch.save(content, run.folder / name)
    generation = latest(run.folder / "generations")
    assert generation is not None
    generation.verify()
    assert "optimizer" in read(generation.path / "checkpoint.pt")
    Run(run.folder)  # the next start
    assert "optimizer" not in read(run.folder / "epoch_1.pt")


def test_the_next_start_writes_what_a_crash_has_left_out(run: Run) -> None:
    run.end_epoch(2)
    (run.folder / "epoch_2.pt").unlink()
    (run.folder / "epoch_latest.pt").write_bytes((run.folder / "epoch_1.pt").read_bytes())
    os.utime(run.folder / "epoch_latest.pt", ns=(0, 0))
    Run(run.folder)
    assert run.published() == {"epoch_1.pt": 1.0, "epoch_2.pt": 2.0, "epoch_latest.pt": 2.0}


def test_the_last_step_is_known(run: Run) -> None:
    """So that a stop does not commit it again."""
    assert run.commits.last_step == 1
    assert Run(run.folder).commits.last_step is None
