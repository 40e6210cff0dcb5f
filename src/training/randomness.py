"""Every random number of a run: seeds, the generators of a process, passes that are repeated with the same numbers.

Nobody else saves, restores or seeds a global generator.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

_NUMPY_SEEDS = 1 << 32


def derive_seed(*parts: int | str) -> int:
    """63 bits from numbers and words; Python's own `hash` differs from process to process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_everything(seed: int, rank: int = 0) -> None:
    """Seed all generators as open_clip does: with rank 0 before the model, with the own rank after it."""
    torch.manual_seed(seed + rank)
    np.random.seed(seed + rank)  # noqa: NPY002 (transforms use the global one)
    random.seed(seed + rank)


def seed_augmentation(seed: int) -> None:
    """Set the three generators that transforms draw from.

    Not `torch.manual_seed`: it also reseeds the accelerators, and remembers a traceback per call if none is in use.
    """
    random.seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)  # noqa: NPY002 (augmentations use the global one)
    torch.default_generator.manual_seed(seed)


def augmentation_seed() -> int:
    """What `seed_augmentation` was given last: the seed of the sample at hand, to derive others from."""
    return torch.default_generator.initial_seed()


@contextlib.contextmanager
def generators_preserved() -> Iterator[None]:
    """Put the generators of the training process back as they were."""
    saved = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(saved[0])
        np.random.set_state(saved[1])  # noqa: NPY002
        torch.set_rng_state(saved[2])


class Replay:
    """The random numbers that a forward pass is about to draw, kept to be drawn again: dropout, on CPU and device.

    Args:
        device: of the model.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda, self._device)


def capture(device: torch.device) -> dict[str, Any]:
    """The state of torch's, Python's and numpy's generators, as plain values that a commit keeps for every rank."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    state: dict[str, Any] = {
        "torch": _encode(torch.get_rng_state()),
        "python": [version, list(internal), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), int(position), int(has_gauss), float(cached)],
    }
    if device.type == "cuda":
        state["cuda"] = _encode(torch.cuda.get_rng_state(device))
    return state


def restore(state: Mapping[str, Any], device: torch.device) -> None:
    """Go on with the numbers that `capture` saw coming."""
    torch.set_rng_state(_decode(state["torch"]))
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, np.asarray(keys, np.uint32), position, has_gauss, cached))  # noqa: NPY002
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(_decode(state["cuda"]), device)


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(bytes(state.numpy())).decode("ascii")


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
