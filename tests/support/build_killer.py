"""Builds of an index that are killed. Run in a process of its own: forking a test process full of torch is slow."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from isogclr.shard_index.build import build_index
from isogclr.shard_index.index import Location, ShardIndex
from support.shard_writing import write_pairs

KILLS_AT_RANDOM = 60
STEP = 4  # shards that a build adds


def prepare(root: Path) -> Path:
    """Twelve shards, four of them in an index."""
    for shard in range(STEP * 3):
        write_pairs(root / "data" / f"{shard}.tar", [f"{key:05d}" for key in range(60)])
    build(root, STEP)
    return root


def build(root: Path, shards: int, workers: int = 1) -> None:
    build_index([f"{root}/data/{shard}.tar" for shard in range(shards)], root / "index", workers=workers)


def in_child(work: Callable[[], object]) -> int:
    """Run something in a forked process that never comes back into the test."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return child


def everything(root: Path) -> list[Location]:
    index = ShardIndex.load(root / "index")
    index.verify()
    return index.locate(range(index.number_of_rows))


def expected(shards: int) -> list[Location]:
    return [Location(f"{shard}.tar", f"{key:05d}") for shard in range(shards) for key in range(60)]


def kill_at_random_moments(root: Path) -> None:
    """Every build adds one shard to what the last one left; twelve are there, then it begins again."""
    chance = random.Random(3)
    longest_seconds = 0.02  # follows the duration of a build, so that about every second kill comes in time
    shards, killed = STEP, 0
    for _ in range(5 * KILLS_AT_RANDOM):
        if killed == KILLS_AT_RANDOM:
            break
        if shards == STEP * 3:
            shards = start_again(root)
        child = in_child(partial(build, root, shards + 1))
        time.sleep(chance.random() * longest_seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        longest_seconds = min(0.5, longest_seconds * (1.2 if os.WIFSIGNALED(status) else 0.8))
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        found = everything(root)
        assert found in (expected(shards), expected(shards + 1))
        shards = len(found) // 60
    assert killed == KILLS_AT_RANDOM
    build(root, STEP * 3)
    assert everything(root) == expected(STEP * 3)
    names = sorted(file.name.partition("-")[0] for file in (root / "index").iterdir() if "rows" not in file.name)
    assert names == ["index.json", "lock", "tables"]  # the last build swept up


def start_again(root: Path) -> int:
    for file in (root / "index").iterdir():
        file.unlink()
    build(root, STEP)
    return STEP


def killing(calls: tuple[str, ...], number: int, before: bool) -> None:
    """From now on, die at the given call to the disk."""
    made = 0

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal made
            made += 1
            if made == number and before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = original(*arguments, **options)
            if made == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call

    for name in calls:
        setattr(os, name, wrap(getattr(os, name)))


def kill_at_every_call(root: Path, before: bool) -> None:
    calls = ("open", "write", "fsync", "rename", "unlink", "close")
    outcomes = []
    for number in range(1, 100):
        start_again(root)

        def work(number: int = number) -> None:
            killing(calls, number, before)
            build(root, STEP + 1)

        _, status = os.waitpid(in_child(work), 0)
        found = everything(root)
        assert found in (expected(STEP), expected(STEP + 1))
        outcomes.append(len(found) // 60)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        build(root, STEP + 2)  # what the dead build left behind does not disturb the next one
        assert everything(root) == expected(STEP + 2)
    assert outcomes.count(STEP) >= 10, "too few calls in front of the publication"
    assert outcomes.count(STEP + 1) >= 2, "too few behind it"
    assert outcomes == sorted(outcomes)


def descendants(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kill_with_workers(root: Path) -> None:
    """Two shards are pipes that nobody writes to, so both workers are caught in the middle of a shard."""
    for name in ("x", "y"):
        os.mkfifo(root / f"{name}.tar")
    urls = [f"{root}/{name}.tar" for name in ("data/0", "x", "y")]
    child = in_child(partial(build_index, urls, root / "index", workers=2))
    try:
        assert wait_until(lambda: len(descendants(child)) >= 2)
        time.sleep(1)  # the workers import and open their shards
        workers = descendants(child)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert wait_until(lambda: not any(map(running, workers)))
    build(root, STEP + 1)
    assert everything(root) == expected(STEP + 1)
