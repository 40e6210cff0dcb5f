"""The thread behind the store: order, failure, end."""

from __future__ import annotations

import threading

import numpy as np

from isogclr.state.pending import Update
from isogclr.state.writer import WriterThread
from support.store_cases import ISOGCLR


def update(step: int) -> Update:
    return Update(step, np.arange(1), ISOGCLR.zeros(1))


def test_updates_are_applied_in_order_and_before_the_end() -> None:
    applied: list[int] = []
    writer = WriterThread(lambda one: applied.append(one.step))
    for step in range(50):
        writer.submit(update(step))
    writer.close()
    assert applied == list(range(50))
    assert writer.error is None


def test_the_one_who_submits_does_not_wait() -> None:
    go_on, applied = threading.Event(), []

    def apply(one: Update) -> None:
        go_on.wait()
        applied.append(one.step)

    writer = WriterThread(apply)
    for step in range(3):
        writer.submit(update(step))
    assert applied == []
    go_on.set()
    writer.close()
    assert applied == [0, 1, 2]


def test_nothing_is_applied_after_a_failure() -> None:
    applied: list[int] = []

    def apply(one: Update) -> None:
        if one.step == 2:
            raise OSError("no room")
        applied.append(one.step)

    writer = WriterThread(apply)
    for step in range(5):
        writer.submit(update(step))
    writer.close()
    assert applied == [0, 1]
    assert str(writer.error) == "no room"
