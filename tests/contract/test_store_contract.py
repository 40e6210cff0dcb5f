"""What every store promises; each implementation passes the same suite."""

from __future__ import annotations

import numpy as np
import pytest

from isogclr.errors import InputError, IsogclrError, StoreError
from isogclr.state.layout import BLOCK_ROWS
from isogclr.state.snapshot import Snapshot
from support.store_cases import (
    FILE,
    FINGERPRINT,
    GLOBAL_TEMPERATURE,
    ISOGCLR,
    ISOGCLR_ADAM,
    MEMORY,
    STATELESS,
    numbers_in,
    values_of,
)

SCHEMAS = [ISOGCLR, ISOGCLR_ADAM, GLOBAL_TEMPERATURE, STATELESS]


@pytest.fixture(params=[FILE, MEMORY], ids=["file", "memory"])
def factory(request):
    return request.param


@pytest.fixture
def store(factory, tmp_path):
    with factory.create(tmp_path) as store:
        yield store


@pytest.mark.parametrize("schema", SCHEMAS, ids=["isogclr", "adam", "global", "stateless"])
def test_a_new_store_is_zero_and_returns_what_was_written(factory, tmp_path, schema):
    with factory.create(tmp_path, schema=schema) as store:
        assert store.newest_step is None
        np.testing.assert_array_equal(store.read(np.arange(100)), schema.zeros(100))
        store.write([4, 99], values_of(schema, [5, 6]), 0)
        assert store.newest_step == 0
        np.testing.assert_array_equal(numbers_in(store.read([99, 4, 4, 0])), [6, 5, 5, 0])


def test_the_first_occurrence_of_a_row_wins(store):
    rows = np.array([7, 3, 7, 3, 7, 50])
    store.write(rows, values_of(store.schema, [1, 2, 3, 4, 5, 6]), 1)
    np.testing.assert_array_equal(numbers_in(store.read([3, 7, 50])), [2, 1, 6])
    store.drain()
    np.testing.assert_array_equal(numbers_in(store.read([3, 7, 50])), [2, 1, 6])


def test_the_first_occurrence_wins_in_a_large_batch(store):
    random = np.random.default_rng(3)
    rows = random.integers(0, store.rows, 5000)
    store.write(rows, values_of(store.schema, np.arange(5000)), 1)
    expected = [int(np.flatnonzero(rows == row)[0]) for row in range(store.rows)]
    np.testing.assert_array_equal(numbers_in(store.read(np.arange(store.rows))), expected)


def test_a_later_step_wins(store):
    for step in range(10):
        store.write([step, 50], values_of(store.schema, [step, step]), step)
        np.testing.assert_array_equal(numbers_in(store.read([50])), [step])
    np.testing.assert_array_equal(numbers_in(store.read(np.arange(10))), np.arange(10))


def test_values_go_in_and_out_by_value(store):
    rows, values = np.array([1, 2]), values_of(store.schema, [1, 2])
    store.write(rows, values, 1)
    rows[:] = 9
    values["visits"] = 77
    read = store.read([1, 2])
    read["visits"] = 88
    np.testing.assert_array_equal(numbers_in(store.read([1, 2, 9])), [1, 2, 0])


def test_nothing_to_read_and_nothing_to_write(store):
    assert store.read([]).shape == (0,)
    store.prefetch([])
    store.write([], store.schema.zeros(0), 4)
    assert store.newest_step == 4
    store.drain()
    np.testing.assert_array_equal(numbers_in(store.read([0, 99])), [0, 0])


def test_prefetch_changes_nothing(store):
    store.write([1], values_of(store.schema, [1]), 1)
    for _ in range(50):
        store.prefetch(np.arange(100))
    np.testing.assert_array_equal(numbers_in(store.read([0, 1])), [0, 1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [([100], "0 to 99"), ([-1], "0 to 99"), ([[1]], "one dimension"), ([1.5], "integers"), (["a"], "integers")],
)
def test_rows_that_do_not_exist_are_refused(store, rows, message):
    for call in (store.read, store.prefetch, lambda rows: store.write(rows, store.schema.zeros(1), 1)):
        with pytest.raises(InputError, match=message):
            call(rows)
    np.testing.assert_array_equal(numbers_in(store.read(np.arange(100))), np.zeros(100))


def test_values_of_another_shape_or_schema_are_refused(store):
    with pytest.raises(InputError, match=r"expected shape \(2,\)"):
        store.write([1, 2], store.schema.zeros(3), 1)
    with pytest.raises(InputError, match="second_moment"):
        store.write([1], ISOGCLR_ADAM.zeros(1), 1)


def test_a_step_is_written_once_and_in_order(store):
    store.write([1], values_of(store.schema, [1]), 5)
    for step in (5, 4):
        with pytest.raises(InputError, match="after step 5"):
            store.write([1], values_of(store.schema, [2]), step)
    np.testing.assert_array_equal(numbers_in(store.read([1])), [1])


@pytest.mark.parametrize("schema", SCHEMAS, ids=["isogclr", "adam", "global", "stateless"])
def test_a_commit_is_restored_by_both_kinds(factory, tmp_path, schema):
    rows = 3 * BLOCK_ROWS + 5
    with factory.create(tmp_path, schema=schema, rows=rows) as store:
        store.write([0, BLOCK_ROWS, rows - 1], values_of(schema, [1, 2, 3]), 12)
        info = store.commit(tmp_path / "snapshot")
        assert info.blocks_used == 3
        store.write([0], values_of(schema, [9]), 13)
    for other in (FILE, MEMORY):
        with other.restore(tmp_path, tmp_path / "snapshot", schema=schema, rows=rows) as restored:
            assert restored.newest_step == 12
            found = restored.read(np.arange(rows))
            np.testing.assert_array_equal(
                numbers_in(found[[0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, rows - 1]]), [1, 0, 2, 0, 3]
            )
            assert np.count_nonzero(found["visits"]) == 3
            restored.commit(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "snapshot").read_bytes()
        (tmp_path / "again").unlink()


def test_a_commit_does_not_replace_a_file(store, tmp_path):
    (tmp_path / "snapshot").write_text("mine")
    with pytest.raises(StoreError, match=r"could not .*: File exists"):
        store.commit(tmp_path / "snapshot")
    assert (tmp_path / "snapshot").read_text() == "mine"


def test_changed_blocks_since_the_last_commit(factory, tmp_path):
    rows = 5 * BLOCK_ROWS
    with factory.create(tmp_path, rows=rows) as store:
        store.write([1, 2 * BLOCK_ROWS], values_of(store.schema, [1, 2]), 1)
        blocks, checksums = store.changed_blocks()
        np.testing.assert_array_equal(blocks, [0, 2])
        store.commit(tmp_path / "snapshot")
        with Snapshot(tmp_path / "snapshot") as snapshot:
            np.testing.assert_array_equal(snapshot.checksums[[0, 2]], checksums)
        assert store.changed_blocks()[0].size == 0
        store.write([4 * BLOCK_ROWS], values_of(store.schema, [1]), 2)
        np.testing.assert_array_equal(store.changed_blocks()[0], [4])
        store.forget_changes()
        assert store.changed_blocks()[0].size == 0
        store.commit(tmp_path / "second")
    with Snapshot(tmp_path / "second") as snapshot:
        snapshot.verify()


@pytest.mark.parametrize("grown", [100, 101, BLOCK_ROWS, BLOCK_ROWS + 1, 20 * BLOCK_ROWS])
def test_restoring_for_an_index_that_has_grown(factory, tmp_path, grown):
    with factory.create(tmp_path) as store:
        store.write(np.arange(100), values_of(store.schema, np.arange(100) + 1), 1)
        store.commit(tmp_path / "snapshot")
    rows_at = {FINGERPRINT: 100}.__getitem__
    with factory.restore(
        tmp_path, tmp_path / "snapshot", rows=grown, fingerprint="index-b", rows_at=rows_at
    ) as restored:
        assert (restored.rows, restored.index_fingerprint) == (grown, "index-b")
        found = numbers_in(restored.read(np.arange(grown)))
        np.testing.assert_array_equal(found[:100], np.arange(100) + 1)
        assert not found[100:].any()
        restored.write([grown - 1], values_of(store.schema, [5]), 2)
        np.testing.assert_array_equal(restored.changed_blocks()[0], [(grown - 1) // BLOCK_ROWS])
        restored.commit(tmp_path / "grown")
    with Snapshot(tmp_path / "grown") as snapshot:
        snapshot.verify()
        assert (snapshot.header.rows, snapshot.header.index_fingerprint) == (grown, "index-b")
    with factory.restore(tmp_path, tmp_path / "grown", rows=grown, fingerprint="index-b") as again:
        expected = np.r_[np.arange(100) + 1, np.zeros(grown - 100, np.int64)]
        expected[-1] = 5
        np.testing.assert_array_equal(numbers_in(again.read(np.arange(grown))), expected)


def _never_had(fingerprint):
    raise IsogclrError(f"the index never had {fingerprint}")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"fingerprint": "index-b"}, "a store of index"),
        ({"rows": 101}, "a store of index"),
        ({"rows": 99, "fingerprint": "index-b", "rows_at": lambda _: 100}, "a store of index"),
        ({"rows": 200, "fingerprint": "index-b", "rows_at": lambda _: 99}, "a store of index"),
        ({"rows": 200, "fingerprint": "index-b", "rows_at": _never_had}, "a store of index"),
        ({"schema": ISOGCLR_ADAM}, "the columns"),
    ],
    ids=["fingerprint", "rows", "shrunk", "other-rows", "foreign", "schema"],
)
def test_a_snapshot_of_another_index_or_loss_is_refused(factory, tmp_path, options, found):
    with factory.create(tmp_path) as store:
        store.commit(tmp_path / "snapshot")
    with pytest.raises(StoreError, match=rf"found {found} .* expected .*; (use|resume)"):
        factory.restore(tmp_path, tmp_path / "snapshot", **options)
    factory.restore(tmp_path, tmp_path / "snapshot").close()  # the refusal has left no lock


def test_a_closed_store_says_so(factory, tmp_path):
    store = factory.create(tmp_path)
    store.close()
    store.close()
    for call in (
        lambda: store.read([1]),
        lambda: store.write([1], store.schema.zeros(1), 1),
        lambda: store.prefetch([1]),
        store.drain,
        lambda: store.commit(tmp_path / "snapshot"),
        store.changed_blocks,
    ):
        with pytest.raises(StoreError, match="closed"):
            call()
    assert not (tmp_path / "snapshot").exists()


@pytest.mark.parametrize("step", [1.7, None, "2", True, -1, 1 << 64])
def test_steps_are_whole_numbers(factory, tmp_path, step):
    with (
        factory.create(tmp_path) as store,
        pytest.raises(InputError, match=r"step: found .* expected a whole number"),
    ):
        store.write([1], store.schema.zeros(1), step)


def test_more_rows_than_a_sort_key_holds_are_refused(factory, tmp_path):
    with pytest.raises(InputError, match="split the data set"):
        factory.create(tmp_path, rows=(1 << 36) + 1)
