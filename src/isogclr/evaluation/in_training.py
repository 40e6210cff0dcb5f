"""A suite on the model that is being trained. For one rank: no collectives, no exit, no global random numbers."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import nn

from isogclr.errors import EvaluationError, IsogclrError
from isogclr.evaluation.data_folders import Located, locate
from isogclr.evaluation.measure import Settings, measure
from isogclr.evaluation.suites import choose
from isogclr.models.encoder import Encoder, Preprocess, Tokenizer, in_evaluation_mode

_log = logging.getLogger(__name__)


def locate_suite(suite: str, data_root: str | Path, datasets: Sequence[str] = ()) -> list[Located]:
    """To be called before a training starts: raises one error that lists all that is missing on disk."""
    found, problems = [], []
    for dataset in choose(suite, datasets):
        try:
            found.append(locate(dataset, Path(data_root)))
        except EvaluationError as error:
            problems.append(str(error))
    if problems:
        raise EvaluationError(f"suite {suite}: {'; '.join(problems)}")
    return found


def evaluate_model(
    model: nn.Module,
    preprocess: Preprocess,
    tokenizer: Tokenizer,
    located: Sequence[Located],
    *,
    device: str | torch.device = "cpu",
    precision: str = "fp32",
    batch_size: int = 64,
    workers: int = 0,
) -> dict[str, float]:
    """Metrics as fractions by `dataset/metric`, such as `flickr30k/image_retrieval_recall@1`.

    A data set that fails is logged and left out: a training of days does not end over it. The model keeps its
    mode, module by module. The caller takes the model out of its DistributedDataParallel wrapper, and makes the
    other ranks wait.
    """
    encoder = Encoder(model, preprocess, tokenizer, device, precision)
    settings = Settings(batch_size, workers, quiet=True)
    metrics: dict[str, float] = {}
    with in_evaluation_mode(model), _random_numbers_kept():
        for one in located:
            try:
                found = measure(encoder, one, settings)
            except IsogclrError as error:
                _log.error("evaluation on %s failed: %s", one.dataset.name, error)
                continue
            metrics |= {f"{one.dataset.name}/{name}": value for name, value in found.items()}
    return metrics


@contextmanager
def _random_numbers_kept() -> Iterator[None]:
    """Importing clip_benchmark's metrics alone draws from Python's generator: a training would notice."""
    state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(state)
