"""Whatever happens to a data set between builds, a row once given never stands for anything else."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import warnings
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from isogclr.errors import ShardWarning
from isogclr.shard_index.build import build_index
from isogclr.shard_index.index import Location, ShardIndex
from support.shard_writing import write_pairs

KEYS = st.lists(st.sampled_from([f"k{number}" for number in range(12)]), min_size=1, max_size=6, unique=True)
SHARDS = st.sampled_from([f"{source}/{shard}.tar" for source in ("cc3m", "cc12m") for shard in range(3)])


class GrowingDataSet(RuleBasedStateMachine):
    """Shards are written, rewritten, left out and moved; the model is what every row has ever stood for."""

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.data = self.root / "data0"
        self.content: dict[str, list[str]] = {}
        self.left_out: set[str] = set()
        self.history: list[Location] = []
        self.rows: dict[tuple[str, str], int] = {}  # (name of the shard, key) -> row
        self.fingerprints: dict[str, int] = {}
        self.clock = itertools.count(1_000_000_000)
        self.write("cc3m/0.tar", ["first"])
        self.build()

    def write(self, name: str, keys: list[str]) -> None:
        path = write_pairs(self.data / name, keys)
        os.utime(path, (next(self.clock),) * 2)
        self.content[name] = keys

    def build(self) -> None:
        urls = [str(self.data / name) for name in self.content if name not in self.left_out]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShardWarning)
            build_index(urls, self.root / "index", workers=1)
        self.check()

    def check(self) -> None:
        index = ShardIndex.load(self.root / "index")
        index.verify()
        now = index.locate(range(index.number_of_rows))
        assert now[: len(self.history)] == self.history
        assert len(set(now)) == len(now)
        for name in set(self.content) - self.left_out:
            rows = index.shard(str(self.data / name))
            for key in self.content[name]:
                row = rows.row(key)
                assert self.rows.setdefault((name, key), row) == row
                assert now[row] == (rows.id, key)
        for fingerprint, count in self.fingerprints.items():
            assert index.rows_at(fingerprint) == count
        self.history = now
        self.fingerprints[index.fingerprint] = index.number_of_rows

    @rule(name=SHARDS, keys=KEYS)
    def add_or_change(self, name: str, keys: list[str]) -> None:
        if name == "cc3m/0.tar":
            keys = ["first", *keys]  # one shard stays recognisable, or it would be another data set
        self.write(name, keys)
        self.left_out.discard(name)
        self.build()

    @precondition(lambda self: len(self.content) - len(self.left_out) > 1)
    @rule(name=SHARDS)
    def leave_out(self, name: str) -> None:
        if name in self.content and name != "cc3m/0.tar":
            self.left_out.add(name)
            self.build()

    @rule(keep_times=st.booleans())
    def move(self, keep_times: bool) -> None:
        target = self.root / f"data{next(self.clock)}"
        shutil.copytree(self.data, target, copy_function=shutil.copy2 if keep_times else shutil.copy)
        shutil.rmtree(self.data)
        self.data = target
        self.left_out.clear()  # what was left out is at its old address no more; name it again
        self.build()

    @invariant()
    def no_leftovers(self) -> None:
        names = {file.name for file in (self.root / "index").iterdir()}
        assert sum(name.startswith("tables-") for name in names) == 1
        assert not any(name.startswith(".partial") for name in names)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)


GrowingDataSet.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestGrowingDataSet = GrowingDataSet.TestCase
