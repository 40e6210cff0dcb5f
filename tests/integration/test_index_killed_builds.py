"""kill -9 during a build, at random moments and at every call to the disk: the old index stays, or the new one."""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support import build_killer


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """In memory if possible: a kill loses nothing that an fsync would have saved, and a busy disk takes minutes."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield build_killer.prepare(Path(folder))


def run(work: Callable[..., None], *arguments: object) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply_async(work, arguments).get(timeout=100)


def test_at_random_moments(root: Path) -> None:
    run(build_killer.kill_at_random_moments, root)


@pytest.mark.parametrize("before", [True, False])
def test_at_every_call(root: Path, before: bool) -> None:
    run(build_killer.kill_at_every_call, root, before)


def test_the_workers_of_a_killed_build_end_too(root: Path) -> None:
    build_killer.kill_with_workers(root)
