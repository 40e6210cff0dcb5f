"""kill -9, for real and often: whatever was committed is there afterwards, whole and unchanged.

Each child is forked from this process, trains (writes rows, commits generations, prunes) and is killed by SIGKILL,
half of them at a random time, half of them at a certain call of the operating system, so that every call of a
commit and of a deletion is the last one at least once.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import struct
import time
from contextlib import suppress

import numpy as np
import pytest

from isogclr.state.generations import (
    STORE_SNAPSHOT,
    latest,
    load_generation,
    prune,
    remove_leftovers,
    write_generation,
)
from isogclr.state.layout import BLOCK_ROWS
from isogclr.state.store import StateStore
from support.store_cases import FINGERPRINT, ISOGCLR, values_of

ROWS = 3 * BLOCK_ROWS + 17
KILLS = 150
CALLS = ("write", "pwrite", "fsync", "rename", "ftruncate", "unlink", "rmdir", "mkdir")
KEEP_EVERY = 7


def _update(step):
    """What every run writes at a step."""
    rows = np.random.default_rng(step).integers(0, ROWS, 64)
    return rows, values_of(ISOGCLR, np.arange(64) + 100 * step)


class Expected:
    """The state after each step, replayed once and kept."""

    def __init__(self):
        self.states = [ISOGCLR.zeros(ROWS)]

    def after(self, step):
        while len(self.states) <= step:
            state = self.states[-1].copy()
            rows, values = _update(len(self.states))
            state[rows[::-1]] = values[::-1]
            self.states.append(state)
        return self.states[step]


def _open(folder):
    generation = latest(folder / "generations")
    if generation is None:
        return StateStore.create(folder / "live", ISOGCLR, ROWS, FINGERPRINT), 0
    snapshot = generation.path / STORE_SNAPSHOT
    return StateStore.restore(folder / "live", snapshot, ISOGCLR, ROWS, FINGERPRINT), generation.step


def _train(folder, report):
    """Resume, then go on for ever. After each commit its step goes into the pipe."""
    remove_leftovers(folder / "generations")
    store, step = _open(folder)
    while True:
        for step in range(step + 1, step + 3):  # noqa: B020 (goes on where the last round ended)
            store.write(*_update(step), step)
        with write_generation(folder / "generations", step=step, keep=step % KEEP_EVERY == 0) as partial:
            (partial / "model.pt").write_bytes(struct.pack("<q", step) * 700)
            store.commit(partial / STORE_SNAPSHOT)
        os.write(report, struct.pack("<q", step))
        prune(folder / "generations", newest=2)


def _die_at_call(number):
    """Let the process kill itself instead of making its `number`-th call that changes the disk."""
    counter = itertools.count(1)

    def deadly(call):
        def wrapper(*arguments, **options):
            if next(counter) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return wrapper

    for name in CALLS:
        setattr(os, name, deadly(getattr(os, name)))


def _run_and_kill(folder, *, after_commits=0, after_seconds=None, at_call=None):
    """Fork a training process and kill it; the last step that it reported as committed."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            os.close(receiver)
            if at_call is not None:
                _die_at_call(at_call)
            _train(folder, sender)
        os._exit(1)  # only an error gets here
    os.close(sender)
    with open(receiver, "rb", buffering=0) as pipe:  # noqa: PTH123 (a descriptor)
        reported = b"".join(pipe.read(8) for _ in range(after_commits))  # a slow machine kills no earlier
        if after_seconds is not None:
            time.sleep(after_seconds)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        reported += pipe.read()
    assert os.WIFSIGNALED(status), "the child failed before it was killed"
    assert os.WTERMSIG(status) == signal.SIGKILL
    return struct.unpack("<q", reported[-8:])[0] if reported else None


def _check(folder, expected, committed, kept):
    """The last commit is there, whole, and equal to what was committed; nothing that is kept was pruned."""
    generation = latest(folder / "generations")
    if committed is not None:
        assert generation is not None
        assert generation.step >= committed  # one more may have become durable before the kill
    if generation is None:
        return 0
    found = [load_generation(path) for path in (folder / "generations").glob("generation-*")]
    for other in found:  # a name is given to what is whole and taken from what is to be deleted: none is damaged
        other.verify()
    kept |= {other.step for other in found if other.manifest.keep}
    assert kept <= {other.step for other in found}
    assert (generation.path / "model.pt").read_bytes() == struct.pack("<q", generation.step) * 700
    store, step = _open(folder)
    with store:
        np.testing.assert_array_equal(store.read(np.arange(ROWS)), expected.after(step))
    return generation.step


def test_killed_at_random_times(tmp_path):
    chance, expected, kept, committed = random.Random(0), Expected(), set(), None
    for _ in range(KILLS):
        reported = _run_and_kill(
            tmp_path, after_commits=chance.choice((0, 0, 1, 2)), after_seconds=chance.uniform(0.0, 0.04)
        )
        found = _check(tmp_path, expected, reported if reported is not None else committed, kept)
        committed = max(found, committed or 0)
    assert committed > KILLS  # else the children never came to commit, and nothing was tested
    assert kept


@pytest.mark.parametrize("first_call", range(1, 101, 10))
def test_killed_at_every_call_of_a_commit_and_a_deletion(tmp_path, first_call):
    """Calls 1 to 100 are all there is: creation, commits, and the deletion of the first generation."""
    expected = Expected()
    for number in range(first_call, first_call + 10):
        folder = tmp_path / str(number)
        folder.mkdir()
        reported = _run_and_kill(folder, at_call=number)
        _check(folder, expected, reported, set())
        second = _run_and_kill(folder, at_call=number)  # again, from what the first has left
        _check(folder, expected, second if second is not None else reported, set())
    if first_call > 90:  # else the calls of a deletion were not among those tried
        assert not (folder / "generations" / "generation-00000001").exists()
