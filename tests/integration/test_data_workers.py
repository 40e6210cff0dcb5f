"""Worker processes: signals that a scheduler sends to everybody, and an end that does not wait for ever."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isogclr.shard_index import ShardIndex
from support.shard_writing import write_numbered_shards
from support.training_data import assert_same, open_data, read
from training.settings import DataSettings


@pytest.fixture
def workers() -> Callable[[], list[int]]:
    """The worker processes that this test has started and that still run."""
    before = {process.pid for process in multiprocessing.active_children()}
    return lambda: [one.pid for one in multiprocessing.active_children() if one.pid and one.pid not in before]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_workers_outlive_signals(tmp_path: Path, workers: Callable[[], list[int]], number: signal.Signals) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [30] * 4)
    index = ShardIndex.build(urls, tmp_path / "index")
    data = open_data(DataSettings(urls, batch_size=4, workers=2), index)
    expected = read(data.epoch(0))
    found = []
    batches = iter(data.epoch(0))
    signalled = workers()
    assert len(signalled) == 2
    for batch in batches:
        found.append(batch)
        for pid in signalled:
            os.kill(pid, number)
    assert_same(found, expected)
    data.close()
    assert workers() == []


def test_close_in_mid_epoch_ends_the_workers(tmp_path: Path, workers: Callable[[], list[int]]) -> None:
    urls = write_numbered_shards(tmp_path / "shards", [30] * 4)
    index = ShardIndex.build(urls, tmp_path / "index")
    data = open_data(DataSettings(urls, batch_size=4, workers=2), index)
    next(iter(data.epoch(0)))
    assert len(workers()) == 2
    data.close()
    assert workers() == []
    assert len(read(data.epoch(0))) == data.batches_per_epoch  # and it can be used again
    data.close()


class _NeverFirst:
    """A transform that never gives its first picture."""

    def __call__(self, image: Any) -> Any:
        time.sleep(1000)


def test_close_does_not_wait_for_data(tmp_path: Path, workers: Callable[[], list[int]]) -> None:
    """torch alone gives every worker five seconds, one after another."""
    urls = write_numbered_shards(tmp_path / "shards", [30] * 4)
    index = ShardIndex.build(urls, tmp_path / "index")
    data = open_data(DataSettings(urls, batch_size=4, workers=2), index, transform=_NeverFirst())
    iter(data.epoch(0))
    time.sleep(0.5)
    start = time.monotonic()
    data.close()
    assert time.monotonic() - start < 4
    assert workers() == []


PROGRAM = """
import sys, time
from support.training_data import open_data, plain_transform
from support.shard_writing import write_numbered_shards
from isogclr.shard_index import ShardIndex
from training.settings import DataSettings
from pathlib import Path

def slow(image):
    time.sleep(0.5)
    return plain_transform(image)

folder = Path(sys.argv[1])
urls = write_numbered_shards(folder / "shards", [30] * 4)
index = ShardIndex.build(urls, folder / "index")
data = open_data(DataSettings(urls, batch_size=2, workers=2), index, transform=slow)
batches = iter(data.epoch(0))
next(batches)
raise SystemExit(7)
"""


def test_a_process_that_leaves_without_closing_ends(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (7, "")
    assert time.monotonic() - begin < 40
