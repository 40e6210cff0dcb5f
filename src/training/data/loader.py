"""torch's DataLoader around the streams of the workers, and how a running worker gets its order."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from isogclr.errors import IsogclrError
from training.data.position import Batch, Part
from training.data.rest_of_epoch import Rest
from training.data.worker import Preparation, Task, WorkerStream
from training.randomness import generators_preserved
from training.ranks.failures import worker_death
from training.settings import DataSettings

Waiting = Callable[[], AbstractContextManager[None]]  # around a wait for data
# Workers end by themselves when they are told to; one that waits for its data does not hear it.
CLOSE_SECONDS = 1.0


@dataclass(frozen=True)
class Order:
    """The batches of one rank: `batches` in all, of which `done` were given before, by workers that had `drawn`."""

    epoch: int
    batches: int
    done: int
    drawn: tuple[int, ...]
    rest: Rest | None = None


class Loader:
    """One set of worker processes for all epochs of one rank.

    The loader takes batches from its workers in turn, beginning with process 0. So after `done` batches the process
    with id i stands in for worker (i + done) mod workers: the next batch is that worker's.
    """

    def __init__(
        self, config: DataSettings, preparation: Preparation, rank: int, world_size: int, pin_memory: bool
    ) -> None:
        self.world_size = world_size
        self.workers = max(1, config.workers)
        self._processes = config.workers
        self._pin_memory = pin_memory
        self._closing: Any = None
        self._dataset = _Streams(config.batch_size, preparation, Part(rank, world_size, 0, self.workers))
        self._loader: DataLoader[Any] | None = None

    def start(self, order: Order, waiting: Waiting) -> Iterator[Batch]:
        """Read this order, instead of any that was not finished."""
        if order.rest is not None:
            self.close()  # running workers can not be told which rows were seen
        self._dataset.set_order(order)
        if self._loader is None:
            self._loader = self._open()
        return _checked(iter(self._loader), self._processes > 0, waiting)

    def _open(self) -> DataLoader[Any]:
        self._closing = multiprocessing.Value("b", 0, lock=False)
        atexit.register(self.close)  # before multiprocessing's own handler, which waits for all workers to end
        return DataLoader(
            self._dataset,
            batch_size=None,
            num_workers=self._processes,
            persistent_workers=self._processes > 0,
            pin_memory=self._pin_memory,
            collate_fn=_as_it_is,
            worker_init_fn=_WorkerStart(self._closing),
        )

    def close(self) -> None:
        """End the worker processes, even in the middle of an epoch."""
        iterator = getattr(self._loader, "_iterator", None)
        self._loader = None
        atexit.unregister(self.close)
        if iterator is not None:
            self._closing.value = 1
            # Not before the loader has closed its queues: who is ended inside one leaves it locked.
            hurry = threading.Timer(CLOSE_SECONDS, _terminate, [iterator._workers])
            hurry.start()
            iterator._shutdown_workers()
            hurry.cancel()
            for worker in iterator._workers:
                worker.kill()  # if it is inside a library that hears no signal; else it has ended


class _Streams(IterableDataset[Batch]):
    """In each process: the stream of the worker that it stands in for."""

    def __init__(self, batch_size: int, preparation: Preparation, part: Part) -> None:
        self._batch_size = batch_size
        self._preparation = preparation
        self._part = part
        self._rest: Rest | None = None
        # Shared with running workers: epoch, batches, done, whether it is a rest, drawn of each worker.
        self._numbers = multiprocessing.Array("q", 4 + part.workers, lock=False)

    def set_order(self, order: Order) -> None:
        if order.rest is not None:
            self._rest = order.rest
        self._numbers[:] = [order.epoch, order.batches, order.done, order.rest is not None, *order.drawn]

    def __iter__(self) -> Iterator[Any]:
        process = get_worker_info()
        epoch, batches, done, is_rest, *drawn = self._numbers
        workers = self._part.workers
        worker = ((process.id if process else 0) + done) % workers
        task = Task(
            epoch=epoch,
            part=self._part._replace(worker=worker),
            batches=_turns(batches, worker, workers) - _turns(done, worker, workers),
            batch_size=self._batch_size,
            skip=drawn[worker],
            rest=self._rest if is_rest else None,
        )
        stream = iter(WorkerStream(task, self._preparation))
        return _sending_errors(stream) if process else stream


def _turns(batches: int, worker: int, workers: int) -> int:
    """How many of the first `batches` batches come from this worker."""
    return (batches - worker + workers - 1) // workers


def _sending_errors(stream: Iterator[Batch]) -> Iterator[Batch | IsogclrError]:
    """An exception that leaves a worker arrives with the worker's traceback for a message; a value does not."""
    try:
        yield from stream
    except IsogclrError as error:
        yield error


def _checked(
    batches: Iterator[Batch | IsogclrError], has_processes: bool, waiting: Waiting = nullcontext
) -> Iterator[Batch]:
    # Augmentation sets the generators that training uses too, if it runs in the same process. They are put back
    # outside of `waiting`, where nothing interrupts.
    keeping = nullcontext if has_processes else generators_preserved
    while True:
        try:
            with keeping(), waiting():
                batch = next(batches, None)
        except (RuntimeError, OSError, EOFError) as error:
            death = worker_death(error, is_receiving=has_processes)
            if death is None:
                raise
            raise death from error
        if batch is None:
            return
        if isinstance(batch, IsogclrError):
            raise batch
        yield batch


def _terminate(workers: Sequence[Any]) -> None:
    for worker in workers:
        worker.terminate()


def _as_it_is(batch: Any) -> Any:
    return batch


class _WorkerStart:
    """What a worker process does first: it outlives the signals that ask the training process to stop.

    Slurm signals every process of a job. The batches in flight are still needed; the training process ends its
    workers itself, if need be with SIGTERM after it has said so in `closing`.
    """

    def __init__(self, closing: Any) -> None:
        self._closing = closing

    def __call__(self, _: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._on_terminate)
        torch.set_num_threads(1)

    def _on_terminate(self, *_: Any) -> None:
        if self._closing.value:
            os._exit(0)
