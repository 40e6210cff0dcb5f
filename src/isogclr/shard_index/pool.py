"""List many shards at once, in order, with a progress bar.

Reading headers is work for the interpreter, so it takes processes, not threads. They are spawned: a fork would copy
the locks of whatever threads the caller runs, and the lock of the index.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from isogclr.errors import unreadable_shard
from isogclr.progress_bars import progress_bar
from isogclr.shard_index.addresses import local_path
from isogclr.shard_index.listing import Listing
from isogclr.shard_index.picture_listing import list_samples

_LOCAL_SHARDS_PER_WORKER = 16
_AHEAD = 4  # listings that wait for the writer, for each worker: bounds the memory when one shard is slow


def default_workers(urls: Sequence[str]) -> int:
    """One for each core; for local shards only as many as repay the half second that it takes to start one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    local = all(local_path(url) is not None for url in urls)
    return min(cores, 1 + len(urls) // _LOCAL_SHARDS_PER_WORKER) if local else cores


def list_shards(urls: Sequence[str], workers: int | None, progress: bool) -> Iterator[Listing]:
    """The listings of the shards in the given order. One worker means this process."""
    workers = min(workers or default_workers(urls), len(urls))
    listings: Iterable[Listing] = map(list_samples, urls) if workers <= 1 else _list_in_processes(urls, workers)
    if progress and urls:  # tqdm takes a lock that forks share, even for a bar that is not shown
        listings = progress_bar(listings, total=len(urls), desc="reading headers", unit="shard")
    yield from listings


def _list_in_processes(urls: Sequence[str], workers: int) -> Iterator[Listing]:
    context = multiprocessing.get_context("spawn")
    waiting: deque[tuple[str, Future[Listing]]] = deque()
    executor = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        for url in urls:
            waiting.append((url, executor.submit(list_samples, url)))
            if len(waiting) >= _AHEAD * workers:
                yield _result(*waiting.popleft())
        while waiting:
            yield _result(*waiting.popleft())
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _result(url: str, future: Future[Listing]) -> Listing:
    try:
        return future.result()
    except BrokenProcessPool:
        reason = "the process that read it, or one beside it, was killed; is there enough memory? Try fewer workers"
        raise unreadable_shard(url, reason) from None


def _end_with_parent() -> None:
    """A killed builder can not stop its workers, and they would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
