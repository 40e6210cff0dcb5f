"""The losses: time of forward + backward from features and extra memory, as ratios to open_clip's ClipLoss."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from open_clip.loss import ClipLoss
from torch._C._distributed_c10d import FileStore
from torch.multiprocessing.spawn import start_processes
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import measure
from isogclr import CyCLIPLoss, ISogCLRConfig, ISogCLRLoss, SogCLRLoss
from isogclr.losses.base import ContrastiveLoss

try:
    from libauc.losses import GCLoss_v2
except ImportError:
    GCLoss_v2 = None

DIMENSION = 512
BATCHES = {512: 21, 2048: 11, 8192: 5}  # batch → repetitions
RANKS = 2
BATCHES_PER_RANK = (256, 1024)
BASELINE = "open_clip ClipLoss"


def features(batch: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit features of pairs that already agree a little, [B, D] each."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(batch, DIMENSION, generator=generator)
    text = 0.1 * image + torch.randn(batch, DIMENSION, generator=generator)
    return normalize(image, dim=1), normalize(text, dim=1)


def contenders(batch: int) -> dict[str, Callable[[], None]]:
    """Name → one forward and backward from leaf features."""
    image, text = features(batch)
    scale = torch.tensor(1 / 0.07, requires_grad=True)
    rows = torch.arange(batch)

    def leaves() -> tuple[torch.Tensor, torch.Tensor]:
        return image.clone().requires_grad_(), text.clone().requires_grad_()

    def clip(loss: ClipLoss) -> None:
        loss(*leaves(), scale).backward()

    def ours(loss: ContrastiveLoss) -> None:
        state = loss.initial_state(batch)
        loss(*leaves(), rows=rows, state=state, logit_scale=scale).loss.backward()

    found: dict[str, Callable[[], None]] = {BASELINE: functools.partial(clip, ClipLoss())}
    config = ISogCLRConfig.preset("paper", rho=min(6.0, 0.9 * torch.log(torch.tensor(batch - 1.0)).item()))
    for name, loss in (("isogclr", ISogCLRLoss(config)), ("sogclr", SogCLRLoss()), ("cyclip", CyCLIPLoss())):
        found[name] = functools.partial(ours, loss)
    if GCLoss_v2 is not None:
        libauc = GCLoss_v2(N=batch, temperature_scheme="individual_learnable")
        found["LibAUC GCLoss_v2"] = lambda: libauc(*leaves(), rows)[0].backward()  # noqa: PLW0108 (new leaves each time)
    return found


def one_process() -> dict:
    """Ratios of time and of extra memory at each batch."""
    results: dict[str, Any] = {}
    for batch, repetitions in BATCHES.items():
        time_ratios = measure.ratios_to(BASELINE, contenders(batch), repetitions)
        memory = {
            name: measure.peak_bytes(functools.partial(_prepared, batch, name), preload=__spec__.name)
            for name in time_ratios
        }
        results[str(batch)] = {
            name: {
                "time_ratio": ratio,
                "extra_mib": memory[name] / 2**20,
                "memory_ratio": memory[name] / memory[BASELINE],
            }
            for name, ratio in time_ratios.items()
        }
    return results


def _prepared(batch: int, name: str) -> Callable[[], None]:
    torch.set_num_threads(2)
    contenders(64)[name]()
    return contenders(batch)[name]


class ReceivedBytes(TorchDispatchMode):
    """Counts what collectives deliver from other ranks, at the operators of torch.distributed."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if name.startswith("c10d::"):
            self.total += received_bytes(name.removeprefix("c10d::"), args)
        return func(*args, **(kwargs or {}))


def received_bytes(operator: str, args: Any) -> int:
    """Bytes that one rank receives in one collective."""
    rank, size = dist.get_rank(), dist.get_world_size()

    def size_of(tensor: torch.Tensor) -> int:
        return tensor.numel() * tensor.element_size()

    if operator == "allgather_":
        return sum(size_of(tensor) for i, tensor in enumerate(args[0][0]) if i != rank)
    if operator == "_allgather_base_":
        return size_of(args[0]) * (size - 1) // size
    if operator == "scatter_":  # gloo's all-to-all is one scatter from each rank; args[1] is empty on receivers
        return 0 if args[1] and args[1][0] else size_of(args[0][0])
    if operator == "reduce_scatter_":
        return size_of(args[0][0]) * (size - 1)
    if operator == "barrier":
        return 0
    raise NotImplementedError(operator)


def several_processes() -> dict:
    """The same against `--local-loss --gather-with-grad`, W gloo ranks of one thread each."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(_rank, args=(folder,), nprocs=RANKS, start_method="forkserver")
        return torch.load(Path(folder) / "results.pt", weights_only=True)


def _rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = FileStore(str(Path(folder) / "store"), RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS, timeout=timedelta(minutes=5))
    results = {}
    for batch in BATCHES_PER_RANK:
        pair = _rank_contenders(batch, rank)
        received = {}
        for name, run in pair.items():
            with ReceivedBytes() as counter:
                run()
            received[name] = counter.total
        ratio = measure.ratios_to(BASELINE, pair, 7)["isogclr"]
        results[str(batch)] = {
            "time_ratio": ratio,
            "bytes_received": received,
            "bytes_ratio": received["isogclr"] / received[BASELINE],
        }
    if rank == 0:
        torch.save(results, Path(folder) / "results.pt")
    dist.destroy_process_group()


def _rank_contenders(batch: int, rank: int) -> dict[str, Callable[[], None]]:
    image, text = features(batch, seed=rank)
    scale = torch.tensor(1 / 0.07, requires_grad=True)
    rows = torch.arange(batch) + rank * batch
    original = ClipLoss(local_loss=True, gather_with_grad=True, rank=rank, world_size=RANKS)
    loss = ISogCLRLoss(ISogCLRConfig.preset("paper", rho=5.0))
    state = loss.initial_state(batch)
    loss(image, text, rows=rows, state=state)  # agrees on the batch size, once per run

    def leaves() -> tuple[torch.Tensor, torch.Tensor]:
        dist.barrier()
        return image.clone().requires_grad_(), text.clone().requires_grad_()

    def clip() -> None:
        original(*leaves(), scale).backward()

    def isogclr() -> None:
        loss(*leaves(), rows=rows, state=state).loss.backward()

    return {BASELINE: clip, "isogclr": isogclr}


def table(results: dict) -> str:
    """Markdown."""
    lines = ["| batch | loss | time, × ClipLoss (median, range) | extra memory, × ClipLoss |", "|---|---|---|---|"]
    for batch, by_name in results["one_process"].items():
        for name, found in by_name.items():
            ratio = found["time_ratio"]
            lines.append(
                f"| {batch} | {name} | {ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f}, "
                f"n={ratio['n']}) | {found['memory_ratio']:.2f} ({found['extra_mib']:.0f} MiB) |"
            )
    lines += ["", f"| batch per rank, W={RANKS} | time, × ClipLoss | bytes received, × ClipLoss |", "|---|---|---|"]
    for batch, found in results["several_processes"].items():
        ratio = found["time_ratio"]
        lines.append(
            f"| {batch} | {ratio['median']:.2f} ({ratio['min']:.2f}–{ratio['max']:.2f}, n={ratio['n']}) "
            f"| {found['bytes_ratio']:.3f} ({found['bytes_received']['isogclr']:,}) |"
        )
    return "\n".join(lines)


def run() -> dict:
    """Everything; about three minutes on two cores."""
    results = {
        "dimension": DIMENSION,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "one_process": one_process(),
        "several_processes": several_processes(),
    }
    if GCLoss_v2 is None:
        print("LibAUC is not installed: not compared (make bench installs it)")
    return results


if __name__ == "__main__":
    found = run()
    print(table(found))
    print(f"\nwritten to {measure.save('loss', found)}")
