"""Run a function in W real gloo processes and collect what each returns."""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

TIMEOUT_SECONDS = 120


def run_ranks(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """`function(*arguments)` in each rank of a default group; results in order of rank.

    Processes are forked from a server that has imported torch but never used it: cheap to start, and free of the
    OpenMP threads of the parent, which do not survive a fork.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "open_clip", "isogclr.losses"])
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank, args=(rank, size, folder, sender, function, arguments), daemon=True
            )
            process.start()
            sender.close()
            pipes.append(receiver)
            processes.append(process)
        try:
            results = [_result(pipe) for pipe in pipes]
            failures = [f"rank {rank} failed:\n{value}" for rank, (ok, value) in enumerate(results) if not ok]
            if failures:
                raise RuntimeError("\n".join(failures))
            return [value for _, value in results]
        finally:
            for process in processes:
                process.terminate()
                process.join()


def _result(pipe: Any) -> tuple[bool, Any]:
    if not pipe.poll(TIMEOUT_SECONDS):
        return False, f"no answer within {TIMEOUT_SECONDS} s"
    # Plain pickle: multiprocessing's own would share tensors through file descriptors of a process that has ended.
    ok, value = pickle.loads(pipe.recv_bytes())
    return ok, value


def _rank(rank: int, size: int, folder: str, sender: Any, function: Callable[..., Any], arguments: tuple) -> None:
    import torch  # noqa: PLC0415
    import torch.distributed as dist  # noqa: PLC0415

    torch.set_num_threads(1)
    store = dist.FileStore(str(Path(folder) / "store"), size)
    timeout = timedelta(seconds=TIMEOUT_SECONDS)
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)
        sender.send_bytes(pickle.dumps((True, function(*arguments))))
        if dist.is_initialized():  # the function may have left the group
            dist.barrier()
            dist.destroy_process_group()
    except BaseException:  # reported to the parent, which fails the test
        sender.send_bytes(pickle.dumps((False, traceback.format_exc())))
