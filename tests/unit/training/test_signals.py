"""A request to stop ends a wait, once, and nothing else."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from training import signals
from training.signals import StopRequest, WaitInterrupted

HANDLED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM)


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Iterator[StopRequest]:
    before = {number: signal.getsignal(number) for number in HANDLED}
    monkeypatch.setattr(signals, "AGAIN_SECONDS", 0.2)
    request = StopRequest.install()
    yield request
    request.end_wait()
    for number, handler in before.items():
        signal.signal(number, handler)


def wait_and_be_signalled(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


def test_a_request_outside_of_a_wait_is_only_noted(stop: StopRequest) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0)
    assert stop
    assert stop.signal == signal.SIGTERM


def test_a_request_before_a_wait_ends_it_at_once(stop: StopRequest) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(WaitInterrupted), stop.interrupts():
        raise AssertionError("it waits")


def test_what_follows_an_interrupted_wait_is_left_alone(stop: StopRequest) -> None:
    with pytest.raises(WaitInterrupted), stop.interrupts():
        wait_and_be_signalled(signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.5)  # the alarm has been switched off


def test_another_thread_ends_the_wait(stop: StopRequest) -> None:
    """As the watch does, when another rank was asked."""
    timer = threading.Timer(0.1, stop.pass_on)
    timer.start()
    with pytest.raises(WaitInterrupted), stop.interrupts():
        time.sleep(10)
    timer.join()


def test_a_wait_that_hangs_again_is_interrupted_again(stop: StopRequest) -> None:
    """Its cleaning up is left alone by further signals, for a while."""
    tidied = []
    start = time.monotonic()

    def wait_and_tidy() -> None:
        try:
            wait_and_be_signalled(signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            tidied.append("in time")
            time.sleep(10)
            tidied.append("never")

    with pytest.raises(WaitInterrupted), stop.interrupts():
        wait_and_tidy()
    assert tidied == ["in time"]
    assert time.monotonic() - start < 5


def test_a_fork_is_not_interrupted(stop: StopRequest) -> None:
    pid = os.fork()
    if not pid:
        with stop.interrupts():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
