"""`training.main` with a torch.compile that captures graphs and runs them, but compiles no C++: that takes long."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from training import main as training_main


def main(argv: Sequence[str]) -> int:
    torch.compile = functools.partial(torch.compile, backend="aot_eager")
    return training_main.main(argv)
