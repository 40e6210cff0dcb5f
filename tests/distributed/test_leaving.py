"""How a rank leaves a run that is over: with none of its threads inside torch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
import torch

from isogclr.distributed import FailureBoard, Messages, Ranks, end_group
from support.gloo import run_ranks
from training.ranks import failures
from training.ranks.failures import FailureWatch
from training.signals import StopRequest

ANSWER_SECONDS = 0.5


def threads() -> list[str]:
    """Names of all threads, those that torch has started too."""
    return [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]


def in_a_cycle() -> dict[str, int]:
    ranks = Ranks()
    holder: list[object] = [Messages.of(ranks), ranks.own_group()]
    holder.append(holder)  # as a model that is wrapped for DDP
    Messages.of(ranks).barrier()
    ranks.sum(torch.ones(3))
    before = sum(name == "pt_gloo_runloop" for name in threads())
    del holder
    end_group()
    return {"before": before, "after": sum(name == "pt_gloo_runloop" for name in threads())}


def test_groups_in_a_cycle_leave_no_thread() -> None:
    for found in run_ranks(2, in_a_cycle):
        assert found["before"] > 0
        assert found["after"] == 0


class SlowBoard(FailureBoard):
    """A rendezvous store that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def first(self) -> str | None:
        self.asked.set()
        time.sleep(ANSWER_SECONDS)
        return super().first()


def asking_watch(monkeypatch: pytest.MonkeyPatch) -> FailureWatch:
    """A watch whose thread is asking, of the first of two ranks."""
    board, ranks = SlowBoard(), Ranks()
    ranks.size = 2
    monkeypatch.setattr(failures, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(failures, "FailureBoard", lambda: board)
    watch = FailureWatch(ranks, StopRequest())
    assert board.asked.wait(10)
    return watch


def test_watch_is_closed_only_when_its_thread_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = asking_watch(monkeypatch)
    assert watch.close()
    assert "failure-watch" not in [thread.name for thread in threading.enumerate()]


def test_watch_says_that_its_thread_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "CLOSE_SECONDS", 0.05)
    watch = asking_watch(monkeypatch)
    assert not watch.close()
    monkeypatch.setattr(failures, "CLOSE_SECONDS", 10.0)
    assert watch.close()


def test_watch_of_one_rank_has_no_thread() -> None:
    assert FailureWatch(Ranks(), StopRequest()).close()
