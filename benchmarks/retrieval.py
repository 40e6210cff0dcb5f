"""Recall at 1, 5, 10 on features of MSCOCO's size: ours against clip_benchmark's own.

Both sides start from the same unit features and give the same six numbers. clip_benchmark computes its recall
inside `evaluate`, so it gets a model whose inputs are features, in batches of 64 as from its command line.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from clip_benchmark.metrics import zeroshot_retrieval
from torch import Tensor
from torch.nn.functional import normalize

from benchmarks import measure
from isogclr.evaluation.metrics import retrieval_recall

IMAGES, CAPTIONS, WIDTH, BATCH = 5_000, 5, 512, 64
KS = [1, 5, 10]
ROUNDS = 3
Recall = Callable[[], dict[str, float]]


def run(images: int = IMAGES, rounds: int = ROUNDS) -> dict[str, Any]:
    """Time in turns, memory each in a process of its own, and the values of both."""
    torch.set_num_threads(2)
    contenders = {"clip_benchmark": _theirs(images), "isogclr": _ours(images)}
    _ours(256)(), _theirs(256)()  # warm up
    values: dict[str, dict[str, float]] = {}
    ratios, seconds = [], []
    for _ in range(rounds):
        spent = {}
        for name, recall in contenders.items():
            start = time.perf_counter()
            values[name] = recall()
            spent[name] = time.perf_counter() - start
        seconds.append(spent)
        ratios.append(spent["clip_benchmark"] / spent["isogclr"])
    memory = {
        "clip_benchmark": measure.peak_bytes(partial(_theirs, images), __name__),
        "isogclr": measure.peak_bytes(partial(_ours, images), __name__),
    }
    hits = {name: _hits(found, images) for name, found in values.items()}
    return {
        "images": images,
        "texts": images * CAPTIONS,
        "width": WIDTH,
        "speedup": measure.spread(ratios),
        "seconds": seconds,
        "peak_bytes": memory,
        "memory_ratio": memory["isogclr"] / memory["clip_benchmark"],
        "values": values,
        "hits": hits,
        "equal": hits["isogclr"] == hits["clip_benchmark"],
    }


def table(results: dict[str, Any]) -> str:
    speedup, memory = results["speedup"], results["peak_bytes"]
    spread = f"{speedup['min']:.1f}–{speedup['max']:.1f}, n={speedup['n']}"
    return "\n".join(
        [
            f"{results['images']:,} images, {results['texts']:,} texts, {results['width']}-d, recall at 1, 5, 10:",
            "",
            "| | isogclr against clip_benchmark | goal |",
            "|---|---|---|",
            f"| speed | {speedup['median']:.1f} × ({spread}) | ≥ 10 × |",
            f"| extra memory | {results['memory_ratio']:.3f} × ({memory['isogclr'] / 2**20:,.0f} against "
            f"{memory['clip_benchmark'] / 2**20:,.0f} MiB) | ≤ 0.3 × |",
            f"| all six values, as numbers of hits | {'equal' if results['equal'] else 'DIFFERENT'} | equal |",
        ]
    )


def _hits(values: dict[str, float], images: int) -> dict[str, int]:
    """How many queries found what they should: clip_benchmark's means are fp32, ours are not."""
    queries = {"image": images * CAPTIONS, "text": images}
    return {name: round(value * queries[name.split("_")[0]]) for name, value in values.items()}


def _features(images: int) -> tuple[Tensor, Tensor, Tensor]:
    """Texts near their image, so that recalls lie between 0 and 1."""
    random = torch.Generator().manual_seed(0)
    owners = torch.arange(images).repeat_interleave(CAPTIONS)
    image = normalize(torch.randn(images, WIDTH, generator=random), dim=1)
    text = normalize(image[owners] + 0.3 * torch.randn(len(owners), WIDTH, generator=random), dim=1)
    return image, text, owners


def _ours(images: int) -> Recall:
    image, text, owners = _features(images)
    return partial(retrieval_recall, image, text, owners, KS)


def _theirs(images: int) -> Recall:
    image, text, _ = _features(images)

    def recall() -> dict[str, float]:
        with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
            return zeroshot_retrieval.evaluate(
                _Lookup(), _batches(image, text), torch.stack, device="cpu", amp=False, recall_k_list=KS
            )

    return recall


class _Lookup:
    """A model whose inputs are their own features."""

    def encode_image(self, images: Tensor) -> Tensor:
        return images

    encode_text = encode_image


def _batches(image: Tensor, text: Tensor) -> Iterator[tuple[Tensor, list[list[Tensor]]]]:
    captions = text.reshape(len(image), CAPTIONS, -1)
    for start in range(0, len(image), BATCH):
        part = slice(start, start + BATCH)
        yield image[part], [list(one) for one in captions[part]]
