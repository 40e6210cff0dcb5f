"""What a rank says when it fails, whatever else happens meanwhile."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from isogclr.distributed import Ranks
from isogclr.errors import DataError
from training.ranks import failures
from training.ranks.failures import FailureWatch
from training.signals import StopRequest


@pytest.fixture(autouse=True)
def _handler_of_other_tests() -> Iterator[None]:
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


def test_a_worker_that_dies_meanwhile_does_not_cost_the_message(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """torch's handler raises wherever the program is, also between the note that a rank has failed and the log."""

    def raise_as_torch_does(*_: Any) -> None:
        raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Killed.")

    describe = failures.describe

    def describe_slowly(error: BaseException) -> str:
        os.kill(os.getpid(), signal.SIGCHLD)
        return describe(error)

    signal.signal(signal.SIGCHLD, raise_as_torch_does)
    monkeypatch.setattr(failures, "describe", describe_slowly)
    watch = FailureWatch(Ranks(), StopRequest())
    with caplog.at_level(logging.ERROR):
        watch.fail(DataError("the cause"))
        watch.fail(DataError("a consequence"))
    assert [record.message for record in caplog.records] == ["rank 0: the cause"]
