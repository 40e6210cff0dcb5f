"""kill -9 during a build, at random moments and at every call to the disk: the old index stays, or the new one."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

import build_killer


def run(work: Callable[..., None], *arguments: object) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(work, arguments)


def test_at_random_moments(tmp_path: Path) -> None:
    run(build_killer.kill_at_random_moments, build_killer.prepare(tmp_path))


@pytest.mark.parametrize("before", [True, False])
def test_at_every_call(tmp_path: Path, before: bool) -> None:
    run(build_killer.kill_at_every_call, build_killer.prepare(tmp_path), before)


def test_the_workers_of_a_killed_build_end_too(tmp_path: Path) -> None:
    build_killer.kill_with_workers(build_killer.prepare(tmp_path))
