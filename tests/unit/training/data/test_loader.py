"""A wait for a batch that is interrupted, in the process that trains."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from training.data.loader import _checked
from training.signals import WaitInterrupted


def generators() -> tuple[Any, ...]:
    return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[union-attr] # noqa: NPY002


class Waiting:
    """Says what the generators are when the region is left in which a signal may raise."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.at_exit = generators()


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_generators_are_put_back_where_nothing_interrupts(is_interrupted: bool) -> None:
    def batches() -> Iterator[Any]:
        for generator in (random.seed, np.random.seed, torch.manual_seed):
            generator(1)
        if is_interrupted:
            raise WaitInterrupted
        yield "a batch"

    before, waiting = generators(), Waiting()
    stream = _checked(batches(), has_processes=False, waiting=lambda: waiting)
    if is_interrupted:
        with pytest.raises(WaitInterrupted):
            next(stream)
    else:
        assert next(stream) == "a batch"
    assert generators() == before
    assert waiting.at_exit != before
