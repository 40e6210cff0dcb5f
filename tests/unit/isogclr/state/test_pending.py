"""The overlay of updates that are not in the file yet, and the bound of what may wait."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isogclr.errors import StoreStalledError
from isogclr.state.pending import PendingUpdates, Update
from support.store_cases import FILE, ISOGCLR, numbers_in, values_of

ROWS = st.one_of(st.integers(0, 30), st.integers(0, (1 << 36) - 1), st.sampled_from([0, 64, 128, 65536, 1 << 35]))


@given(st.lists(st.lists(ROWS, max_size=20), max_size=6), st.lists(ROWS, max_size=20), st.integers(-1, 6))
def test_the_overlay_is_a_dict_of_the_steps_after_the_applied_one(batches, wanted, applied):
    """Rows that differ in their high bits only collide in the filter; the result must not care."""
    pending, model = PendingUpdates(), {}
    for step, batch in enumerate(batches):
        numbers = np.arange(len(batch)) + 1 + 100 * step
        pending.add(Update(step, np.array(batch, np.int64), values_of(ISOGCLR, numbers)))
        if step > applied:
            model.update(reversed(list(zip(batch, numbers.tolist(), strict=True))))
    for forget_first in (False, True):
        if forget_first:
            pending.forget(applied)
        values = ISOGCLR.zeros(len(wanted))
        pending.lay_over(np.array(wanted, np.int64), values, applied)
        assert numbers_in(values).tolist() == [model.get(row, 0) for row in wanted]
    pending.forget(len(batches))
    assert pending.nbytes == 0


@pytest.mark.parametrize("applied", [-1, 0, 7, 15, 16, 100, 255, 256, 300, 580, 598, 599])
def test_many_updates_that_wait_are_merged_and_laid_over_like_single_ones(applied):
    """On top of a file that contains the steps up to `applied`, the result is the state after all steps."""
    steps, rows = 600, 2000
    random = np.random.default_rng(0)
    pending, states = PendingUpdates(), [np.zeros(rows, np.int64)]
    for step in range(steps):
        batch = random.integers(0, rows, 5)
        numbers = np.arange(5) + 1 + 10 * step
        pending.add(Update(step, batch, values_of(ISOGCLR, numbers)))
        states.append(states[-1].copy())
        states[-1][batch[::-1]] = numbers[::-1]
    assert len(pending._runs) < 3 * 16
    assert pending.nbytes > 0
    for forget_first in (False, True):
        if forget_first:
            pending.forget(applied)
        values = values_of(ISOGCLR, states[applied + 1])
        pending.lay_over(np.arange(rows), values, applied)
        assert numbers_in(values).tolist() == states[-1].tolist()
    pending.forget(steps)
    assert pending.nbytes == 0


@pytest.fixture
def gated(tmp_path):
    """A store whose writer thread waits for a gate; opened at the end."""
    store, gate = FILE.create(tmp_path, rows=1000), threading.Event()
    store._check_space = lambda rows: gate.wait(30)
    store.gate = gate
    yield store
    gate.set()
    store.close()


def _write(store, step):
    store.write(np.arange(step, step + 3), values_of(ISOGCLR, np.full(3, step)), step)


def test_reads_contain_what_the_disk_has_not_seen(gated):
    for step in range(1, 60):
        _write(gated, step)
    assert gated.applied_step is None
    assert not gated._live.data["visits"].any()
    found = numbers_in(gated.read(np.arange(62)))
    np.testing.assert_array_equal(found, [0, *range(1, 60), 59, 59])
    gated.gate.set()
    gated.drain()
    assert gated.applied_step == 59
    np.testing.assert_array_equal(numbers_in(gated.read(np.arange(62))), found)
    np.testing.assert_array_equal(gated._live.data["visits"][:62], found)


def test_a_write_does_not_wait_for_the_disk_until_the_queue_is_full(gated):
    gated.queue_bytes = 20_000
    step, start = 0, time.monotonic()
    while gated._pending.nbytes < 18_000:
        step += 1
        _write(gated, step)
    assert step > 5
    assert gated.wait_seconds == 0.0
    threading.Timer(0.3, gated.gate.set).start()
    for _ in range(100):
        step += 1
        _write(gated, step)
    assert 0.1 < gated.wait_seconds < time.monotonic() - start + 0.01
    gated.drain()
    np.testing.assert_array_equal(numbers_in(gated.read([step, step + 2])), [step, step])


def test_a_disk_that_does_not_move_is_an_error_and_loses_nothing(gated):
    gated.queue_bytes, gated.stall_seconds = 1, 0.2
    _write(gated, 1)  # an update above the bound goes in when nothing else waits
    with pytest.raises(StoreStalledError, match=r"nothing has moved for 0\.2 s"):
        _write(gated, 2)
    np.testing.assert_array_equal(numbers_in(gated.read([1, 4])), [1, 0])
    gated.gate.set()
    _write(gated, 2)
    np.testing.assert_array_equal(numbers_in(gated.read([1, 4])), [1, 2])


def test_closing_after_an_error_shows_the_error(tmp_path):
    """The traceback holds arrays of the mapping while the store is closed."""
    with pytest.raises(StoreStalledError), FILE.create(tmp_path) as store:  # noqa: PT012 (closing is tested)
        store._live.published.begin(5)
        store.stall_seconds = 0.05
        store.read([1])
    FILE.create(tmp_path).close()


def test_an_error_in_the_writer_thread_reaches_the_caller(tmp_path):
    def broken(rows):
        raise ValueError("what nobody thought of")

    with FILE.create(tmp_path) as store:
        store._check_space = broken
        _write(store, 1)
        with pytest.raises(StoreStalledError, match="what nobody thought of"):
            store.drain()
        for call in (
            lambda: store.read([1]),
            lambda: _write(store, 2),
            lambda: store.commit(tmp_path / "snapshot"),
        ):
            with pytest.raises(StoreStalledError):
                call()
    assert not (tmp_path / "snapshot").exists()


def test_a_read_during_a_write_of_an_unknown_step_is_made_again(tmp_path):
    """The first copy of a reader is torn: the writer has begun a step that the reader does not know."""
    with FILE.create(tmp_path) as store:
        published = store._live.published
        published.begin(5)
        store._live.data["visits"] = 1  # half of a row is written
        answers = iter([-1, -1, 5])

        def applied():
            answer = next(answers)
            if answer == 5:
                store._live.data[:] = values_of(ISOGCLR, np.ones(len(store._live.data)))
            return answer

        published.applied = applied
        np.testing.assert_array_equal(numbers_in(store.read([1, 2])), [1, 1])
        assert next(answers, None) is None


def test_a_writer_that_died_in_the_middle_of_a_step_is_not_waited_for(tmp_path):
    with FILE.create(tmp_path) as store:
        store._live.published.begin(5)
        store.stall_seconds = 0.1
        with pytest.raises(StoreStalledError):
            store.read([1])
