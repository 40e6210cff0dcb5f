"""Random histories of a store against a dict: writes, commits, crashes, restarts, growth."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from isogclr.state.generations import STORE_SNAPSHOT, latest, prune, write_generation
from isogclr.state.layout import BLOCK_ROWS
from support.store_cases import (
    FILE,
    GLOBAL_TEMPERATURE,
    ISOGCLR,
    ISOGCLR_ADAM,
    LAGGING_FILE,
    MEMORY,
    STATELESS,
    numbers_in,
    values_of,
)

FIRST_ROWS = BLOCK_ROWS + 10
CORNERS = (0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, FIRST_ROWS - 1)


class StoreMachine(RuleBasedStateMachine):
    """The model: a dict of what was written, and a copy of it for every commit."""

    factory = FILE

    @initialize(schema=st.sampled_from([ISOGCLR, ISOGCLR_ADAM, GLOBAL_TEMPERATURE, STATELESS]))
    def start(self, schema):
        self.folder = Path(tempfile.mkdtemp(prefix="isogclr-machine-"))
        self.root = self.folder / "generations"
        self.schema, self.rows, self.fingerprint, self.step = schema, FIRST_ROWS, "index-0", 0
        self.model, self.committed = {}, None
        self.store = self.factory.create(self.folder, schema=schema, rows=self.rows, fingerprint=self.fingerprint)

    @rule(data=st.data())
    def write(self, data):
        rows = data.draw(st.lists(self._any_row(), max_size=12))
        self.step += data.draw(st.integers(1, 3))
        numbers = np.arange(1, len(rows) + 1) * 1000 + self.step
        self.store.write(np.array(rows, np.int64), values_of(self.schema, numbers), self.step)
        for row, number in reversed(list(zip(rows, numbers.tolist(), strict=True))):
            self.model[row] = number  # reversed: of a row that repeats, the first is set last

    @rule(data=st.data())
    def read(self, data):
        rows = data.draw(st.lists(self._any_row(), max_size=12))
        self.store.prefetch(np.array(rows, np.int64))
        found = numbers_in(self.store.read(np.array(rows, np.int64)))
        assert found.tolist() == [self.model.get(row, 0) for row in rows]

    @rule()
    def drain(self):
        self.store.drain()

    @rule(keep=st.booleans())
    def commit(self, keep):
        self._commit(keep)

    def _commit(self, keep):
        with write_generation(self.root, step=self.step, keep=keep) as folder:
            (folder / "model.pt").write_bytes(b"weights of step %d" % self.step)
            self.store.commit(folder / STORE_SNAPSHOT)
        self.committed = (dict(self.model), self.rows, self.fingerprint, self.step)

    @rule(newest=st.integers(1, 3))
    def prune(self, newest):
        prune(self.root, newest=newest)

    @precondition(lambda self: self.rows < 3 * BLOCK_ROWS)
    @rule(added=st.sampled_from([0, 1, BLOCK_ROWS - 10, 2 * BLOCK_ROWS]))
    def commit_and_grow(self, added):
        """The index is extended between two runs; new rows or none, it has another fingerprint."""
        self._commit(keep=False)
        self.store.close()
        self._restore(added, self.fingerprint + "+")

    @rule(garbage=st.binary(min_size=1, max_size=64), added=st.sampled_from([0, 0, 1, BLOCK_ROWS]))
    def crash_and_reopen(self, garbage, added):
        """Nothing of the live file survives: it is overwritten with garbage before the restart."""
        self.store.close()
        for live in self.folder.glob("live"):
            size = live.stat().st_size
            with live.open("r+b") as file:
                file.seek(8)  # the magic says that the file is ours to replace
                file.write(garbage * (size // len(garbage) // 2))
        generation = latest(self.root)
        if self.committed is None:
            assert generation is None
            self.model, self.rows, self.fingerprint, self.step = {}, FIRST_ROWS, "index-0", 0
            self.store = self.factory.create(
                self.folder, schema=self.schema, rows=self.rows, fingerprint=self.fingerprint
            )
            return
        _, _, earlier, self.step = self.committed
        assert generation.step == self.step
        assert (generation.path / "model.pt").read_bytes() == b"weights of step %d" % self.step
        generation.verify()
        self._restore(added, earlier + "r" * bool(added))

    def _restore(self, added, fingerprint):
        """Go on from the latest generation, with an index of so many more rows."""
        model, rows, earlier, _ = self.committed
        self.model, self.rows, self.fingerprint = dict(model), rows + added, fingerprint
        self.store = self.factory.restore(
            self.folder,
            latest(self.root).path / STORE_SNAPSHOT,
            schema=self.schema,
            rows=self.rows,
            fingerprint=self.fingerprint,
            rows_at={earlier: rows}.__getitem__,
        )

    @invariant()
    def every_row_is_as_in_the_model(self):
        found = numbers_in(self.store.read(np.arange(self.rows)))
        expected = np.zeros(self.rows, np.int64)
        expected[list(self.model)] = list(self.model.values())
        np.testing.assert_array_equal(found, expected)
        assert self.store.rows == self.rows

    def teardown(self):
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    def _any_row(self):
        return st.one_of(st.sampled_from(CORNERS), st.integers(0, self.rows - 1))


class LaggingMachine(StoreMachine):
    factory = LAGGING_FILE


class MemoryMachine(StoreMachine):
    factory = MEMORY


PROFILE = settings(max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck))
TestFileStore = StoreMachine.TestCase
TestFileStore.settings = PROFILE
TestLaggingFileStore = LaggingMachine.TestCase
TestLaggingFileStore.settings = PROFILE
TestMemoryStore = MemoryMachine.TestCase
TestMemoryStore.settings = PROFILE
