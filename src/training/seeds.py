"""Seeds that depend on what is seeded, and on nothing else: not on the process, the machine or the time."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator

import numpy as np
import torch

_NUMPY_SEEDS = 1 << 32


def derive_seed(*parts: int | str) -> int:
    """63 bits from numbers and words; Python's own `hash` differs from process to process."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_augmentation(seed: int) -> None:
    """Set the three generators that transforms draw from.

    Not `torch.manual_seed`: it also reseeds the accelerators, and remembers a traceback a call if none is in use.
    """
    random.seed(seed)
    np.random.seed(seed % _NUMPY_SEEDS)  # noqa: NPY002 (augmentations use the global one)
    torch.default_generator.manual_seed(seed)


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
