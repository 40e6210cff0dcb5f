"""Several real processes on one store: nobody reads a value that is torn or older than the last step it knows."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from multiprocessing import get_context
from threading import BrokenBarrierError

import numpy as np
import pytest

from isogclr.errors import InputError, StoreAbandonedError, StoreError, StoreLockedError, StoreStalledError
from isogclr.state.lock import StoreLock, lock_holder
from isogclr.state.store import StateStore
from support.store_cases import FINGERPRINT, ISOGCLR, numbers_in, values_of

CONTEXT = get_context("fork")
ROWS = 6000
READERS = 3
SECONDS = 3.0


def _batch(step):
    """The exchange of a step: few rows, so that steps overlap all the time, with duplicates that must lose."""
    rows = np.random.default_rng(step).integers(0, 600, 400) * 10
    return np.concatenate((rows, rows[::-1])), values_of(ISOGCLR, np.r_[np.full(400, step), np.full(400, 1)])


def _follow(store, barrier, last_step, end_time=None):
    """The loop of a rank: read, exchange, submit. The barrier stands for the exchange, which all ranks join.

    The writer says before an exchange whether it is the last, as a number, so that all ranks end at the same step.
    """
    state = np.zeros(ROWS, np.int64)
    step = 0
    while True:
        found = numbers_in(store.read(np.arange(ROWS)))  # fails if the columns of a row are of different steps
        np.testing.assert_array_equal(found, state, err_msg=f"after step {step}")
        if end_time is not None and time.monotonic() > end_time:
            last_step.value = step
        barrier.wait(30)
        if 0 <= last_step.value <= step:
            return
        step += 1
        rows, values = _batch(step)
        store.write(rows, values, step)
        state[rows[:400]] = step


def _reader(path, run, barrier, last_step, errors):
    try:
        store = StateStore.open(path, FINGERPRINT, run)
        try:
            _follow(store, barrier, last_step)
        finally:
            store.close()
    except BaseException:
        errors.put(traceback.format_exc())
        barrier.abort()


def _lag(store, monkeypatch):
    """The readers live on their overlays, and the writer catches up in the middle of reads."""
    check_space = store._check_space
    store._check_space = lambda rows: (time.sleep(0.02), check_space(rows))


def _tear(store, monkeypatch):
    """Every update is half written for a while: first some columns of some rows, then all."""
    put = np.put

    def slow_put(array, rows, values, mode="raise"):
        if array is store._live.data:
            for part in np.array_split(np.arange(len(rows)), 4):
                array["text_temperature"][rows[part]] = values["text_temperature"][part]
                array["visits"][rows[part]] = values["visits"][part]
                time.sleep(0.0005)
        put(array, rows, values, mode=mode)

    monkeypatch.setattr(np, "put", slow_put)


@pytest.mark.slow
@pytest.mark.parametrize("disturb", [None, _lag, _tear], ids=["prompt", "lagging", "tearing"])
def test_no_rank_reads_a_stale_or_torn_value(tmp_path, monkeypatch, disturb):
    barrier, last_step = CONTEXT.Barrier(READERS + 1), CONTEXT.Value("q", -1)
    errors = CONTEXT.SimpleQueue()
    with StateStore.create(tmp_path / "live", ISOGCLR, ROWS, FINGERPRINT) as store:
        readers = [
            CONTEXT.Process(target=_reader, args=(tmp_path / "live", store.run, barrier, last_step, errors))
            for _ in range(READERS)
        ]
        for reader in readers:
            reader.start()
        if disturb is not None:  # in this process, the writer's
            disturb(store, monkeypatch)
        try:
            _follow(store, barrier, last_step, time.monotonic() + SECONDS)
        except BrokenBarrierError:
            pytest.fail(errors.get())
        except BaseException:
            barrier.abort()
            raise
        finally:
            for reader in readers:
                reader.join(30)
        assert errors.empty(), errors.get()
    assert last_step.value > 50


def _read_at_any_time(path, errors, stop, count):
    """Reads that are in no order with the steps, as a logger might do."""
    try:
        store = StateStore.open(path, FINGERPRINT)
        last = np.zeros(ROWS, np.int64)
        while not stop.value:
            found = numbers_in(store.read(np.arange(ROWS)))
            assert (found >= last).all(), "a row went back to an older step"
            last = found
            count.value += 1
        store.close()
    except BaseException:
        errors.put(traceback.format_exc())


@pytest.mark.slow
def test_a_reader_that_knows_no_steps_reads_no_torn_row(tmp_path):
    """The writer is always ahead of it, so it must notice writes that run during its copy, and copy again."""
    stop, count = CONTEXT.Value("i", 0), CONTEXT.Value("q", 0)
    errors = CONTEXT.SimpleQueue()
    with StateStore.create(tmp_path / "live", ISOGCLR, ROWS, FINGERPRINT) as store:
        readers = [
            CONTEXT.Process(target=_read_at_any_time, args=(tmp_path / "live", errors, stop, count))
            for _ in range(2)
        ]
        for reader in readers:
            reader.start()
        end, step = time.monotonic() + SECONDS / 2, 0
        while time.monotonic() < end:
            step += 1
            store.write(np.arange(ROWS), values_of(ISOGCLR, np.full(ROWS, step)), step)
            store.drain()
            time.sleep(0.0005)
        stop.value = 1
        for reader in readers:
            reader.join(30)
    assert errors.empty(), errors.get()
    assert count.value > 20
    assert step > 100


def _hold(path, ready, release):
    store = StateStore.create(path, ISOGCLR, 10, FINGERPRINT)
    ready.set()
    release.wait(30)
    store.close()


@pytest.fixture
def holder(tmp_path):
    """Another process that has the store in `tmp_path`; killed at the end."""
    ready, release = CONTEXT.Event(), CONTEXT.Event()
    process = CONTEXT.Process(target=_hold, args=(tmp_path / "live", ready, release))
    process.start()
    assert ready.wait(30)
    process.may_end = release
    yield process
    process.kill()
    process.join()


def _lock_file(tmp_path):
    return tmp_path / "live.lock"


def test_a_second_run_is_refused_with_the_pid(tmp_path, holder):
    with pytest.raises(StoreLockedError, match=f"pid {holder.pid} on {socket.gethostname()}") as caught:
        StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT)
    assert (caught.value.pid, caught.value.host) == (holder.pid, socket.gethostname())
    assert lock_holder(_lock_file(tmp_path)).pid == holder.pid
    holder.may_end.set()
    holder.join(30)
    assert lock_holder(_lock_file(tmp_path)) is None
    StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT).close()


def test_a_second_store_in_the_same_process_is_refused_and_the_first_keeps_its_lock(tmp_path):
    with StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT):
        for _ in range(2):
            with pytest.raises(StoreLockedError, match=f"pid {os.getpid()}"):
                StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT)
            assert lock_holder(_lock_file(tmp_path)).pid == os.getpid()
        assert _try_lock_elsewhere(_lock_file(tmp_path)) == os.getpid()
    assert _try_lock_elsewhere(_lock_file(tmp_path)) is None


def _try_lock_elsewhere(path):
    """What another process sees: the pid that holds the lock, or None if it could take it."""
    program = (
        "import sys, pathlib; from isogclr.state.lock import StoreLock; from isogclr.errors import "
        "StoreLockedError\ntry: StoreLock(pathlib.Path(sys.argv[1])).release()\n"
        "except StoreLockedError as error: print(error.pid)"
    )
    result = subprocess.run([sys.executable, "-c", program, str(path)], check=True, capture_output=True, text=True)
    return int(result.stdout) if result.stdout else None


def test_the_lock_of_a_killed_process_is_stale(tmp_path, holder, caplog):
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT) as store:
        assert store._lock.took_over.pid == holder.pid
    assert f"stale lock of pid {holder.pid}" in caplog.text
    caplog.clear()
    StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT).close()
    assert "stale" not in caplog.text  # this time it was released


@pytest.mark.parametrize("text", [None, "", "{", '{"pid": 1}', "[]"], ids=repr)
def test_a_pid_that_was_given_to_another_process_holds_nothing(tmp_path, text):
    """The file names a process that lives, but the kernel knows no lock of it."""
    if text is None:
        text = json.dumps({"pid": os.getppid(), "host": socket.gethostname(), "started": 1})
    _lock_file(tmp_path).write_text(text)
    assert lock_holder(_lock_file(tmp_path)) is None
    lock = StoreLock(_lock_file(tmp_path))
    assert (lock.took_over is None) == (text == "")
    lock.release()


def test_a_lock_of_another_host_on_a_network_file_system_is_believed(tmp_path, monkeypatch):
    _lock_file(tmp_path).write_text(json.dumps({"pid": 123, "host": "another", "started": 1}))
    monkeypatch.setattr("isogclr.state.lock.network_file_system", lambda path: "nfs4")
    with pytest.raises(StoreLockedError, match=r"pid 123 on another.*delete the lock file"):
        StoreLock(_lock_file(tmp_path))


def test_a_forked_data_worker_neither_holds_nor_releases_the_lock(tmp_path):
    with StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT) as store:
        child = os.fork()
        if child == 0:
            store._lock.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert _try_lock_elsewhere(_lock_file(tmp_path)) == os.getpid()


def _count_refusals(store):
    refused = 0
    for call in (lambda: store.read([1]), lambda: store.write([1], store.schema.zeros(1), 2), store.drain):
        try:
            call()
        except StoreError:
            refused += 1
    store.close()
    return refused


def test_a_fork_may_not_use_the_store_of_its_parent(tmp_path):
    """It would miss every later step, and a write from it would be a second writer."""
    with StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT) as store:
        store.write([1], values_of(ISOGCLR, [1]), 1)
        store.prefetch([1])
        child = os.fork()
        if child == 0:
            refused = 99
            try:
                refused = _count_refusals(store)
            finally:
                os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        np.testing.assert_array_equal(numbers_in(store.read([1])), [1])
        assert lock_holder(_lock_file(tmp_path)).pid == os.getpid()


def test_a_worker_that_outlives_its_trainer_does_not_keep_the_lock(tmp_path):
    """A trainer that was killed leaves data workers for a while; a restart must not wait for them."""
    receiver, sender = os.pipe()
    trainer = os.fork()
    if trainer == 0:
        StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT)
        worker = os.fork()
        if worker == 0:
            time.sleep(30)
            os._exit(0)
        os.write(sender, str(worker).encode())
        time.sleep(30)
        os._exit(0)
    worker = int(os.read(receiver, 20))
    os.kill(trainer, signal.SIGKILL)
    os.waitpid(trainer, 0)
    try:
        os.kill(worker, 0)  # it lives
        with StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT):
            assert lock_holder(_lock_file(tmp_path)).pid == os.getpid()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_live_file_without_its_writer_is_not_opened(tmp_path, holder):
    StateStore.open(tmp_path / "live", FINGERPRINT).close()
    os.kill(holder.pid, signal.SIGKILL)
    holder.join()
    with pytest.raises(StoreAbandonedError, match="never trusted"):
        StateStore.open(tmp_path / "live", FINGERPRINT)
    with pytest.raises(StoreAbandonedError, match="no live file"):
        StateStore.open(tmp_path / "other", FINGERPRINT)


def test_a_reader_whose_writer_dies_stops_waiting(tmp_path, holder):
    with StateStore.open(tmp_path / "live", FINGERPRINT) as reader:
        reader.stall_seconds = 0.2
        reader.write([1], values_of(ISOGCLR, [1]), 1)  # the writer never hears of it
        with pytest.raises(StoreStalledError, match="nothing has moved"):
            reader.drain()
        os.kill(holder.pid, signal.SIGKILL)
        holder.join()
        with pytest.raises(StoreAbandonedError):
            reader.drain()
        np.testing.assert_array_equal(numbers_in(reader.read([1, 2])), [1, 0])


def test_ranks_of_another_run_or_index_can_not_attach(tmp_path, holder):
    with pytest.raises(StoreAbandonedError, match="each run its own"):
        StateStore.open(tmp_path / "live", FINGERPRINT, run="0123")
    with pytest.raises(StoreError, match="different indexes; give all of them the same one"):
        StateStore.open(tmp_path / "live", "index-b")


def test_a_reader_can_not_do_what_is_the_writers(tmp_path, holder):
    with StateStore.open(tmp_path / "live", FINGERPRINT) as reader:
        assert not reader.is_writer
        for call in (
            lambda: reader.commit(tmp_path / "snapshot"),
            reader.changed_blocks,
        ):
            with pytest.raises(InputError, match="first rank"):
                call()
        with pytest.raises(ValueError, match="read-only"):
            reader._live.data["visits"] = 1


def test_a_rank_that_attaches_after_growth_sees_the_new_rows(tmp_path):
    with StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT) as store:
        early = StateStore.open(tmp_path / "live", FINGERPRINT)
        store.write([9], values_of(ISOGCLR, [4]), 1)
        store.commit(tmp_path / "snapshot")
    rows_at = {FINGERPRINT: 10}.__getitem__
    with StateStore.restore(tmp_path / "live", tmp_path / "snapshot", ISOGCLR, 9000, "index-b", rows_at) as store:
        store.write([8999], values_of(ISOGCLR, [5]), 2)
        store.drain()
        with StateStore.open(tmp_path / "live", "index-b", store.run) as late:
            assert late.rows == 9000
            np.testing.assert_array_equal(numbers_in(late.read([9, 8999, 100])), [4, 5, 0])
        with pytest.raises(StoreError, match="different indexes; give all of them the same one"):
            StateStore.open(tmp_path / "live", FINGERPRINT)
        np.testing.assert_array_equal(numbers_in(early.read([9])), [4])
        with pytest.raises(InputError, match="0 to 9"):
            early.read([10])
        early.close()


def test_a_rank_that_attaches_late_knows_the_last_step(tmp_path):
    with StateStore.create(tmp_path / "live", ISOGCLR, 10, FINGERPRINT) as store:
        store.write([1], values_of(ISOGCLR, [5]), 5)
        store.drain()
        with StateStore.open(tmp_path / "live", FINGERPRINT) as reader:
            assert reader.newest_step == 5
            with pytest.raises(InputError, match="after step 5"):
                reader.write([1], values_of(ISOGCLR, [4]), 4)
