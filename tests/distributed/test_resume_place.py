"""A node that does not see what rank 0 resumes from: its folder of runs is on a disk of its own."""

from __future__ import annotations

import socket
from pathlib import Path

from isogclr.distributed import Messages, Ranks
from isogclr.errors import TrainingError
from support.gloo import run_ranks
from training.commits.resume import find


def resume(path: str) -> str:
    messages = Messages.of(Ranks())
    place = path if messages.ranks.rank == 0 else "/nowhere"
    if messages.ranks.rank != 0:
        Path.exists = lambda self: str(self) != path  # type: ignore[method-assign, assignment]
    try:
        find(place, None, messages)
    except TrainingError as error:
        return str(error)
    return ""


def test_all_ranks_refuse(tmp_path: Path) -> None:
    (tmp_path / "epoch_1.pt").touch()
    said = run_ranks(3, resume, str(tmp_path / "epoch_1.pt"))
    assert len(set(said)) == 1
    assert said[0].startswith(
        f"{socket.gethostname()}: found nothing at {tmp_path / 'epoch_1.pt'}, expected what rank 0"
    )
