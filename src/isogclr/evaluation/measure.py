"""One model on one data set: clip_benchmark reads and classifies, and the metrics come out as fractions."""

from __future__ import annotations

import gc
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from isogclr.errors import EvaluationError, IsogclrError
from isogclr.evaluation.damage import unreadable_image
from isogclr.evaluation.data_folders import Located
from isogclr.evaluation.metrics import mean_per_class_recall, retrieval_recall, top_k_accuracy
from isogclr.evaluation.suites import RECALL_AT, RETRIEVAL, TOP_K
from isogclr.models.encoder import Encoder
from isogclr.progress_bars import bars_of_others, progress_bar


@dataclass(frozen=True)
class Settings:
    """How to run; nothing of it but the precision (in the encoder) is meant to change a result."""

    batch_size: int = 64
    workers: int = 0
    quiet: bool = False


def measure(encoder: Encoder, located: Located, settings: Settings) -> dict[str, float]:
    """All metrics of the data set's task. Starts no collectives.

    Raises EvaluationError for whatever the data, the model or clip_benchmark can not do.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # webdataset 0.2.86 does not close the shards it has read
        outcome = _attempt(encoder, located, settings)
        if located.shards:
            gc.collect()
    if isinstance(outcome, IsogclrError):
        raise outcome
    return outcome


def _attempt(encoder: Encoder, located: Located, settings: Settings) -> dict[str, float] | IsogclrError:
    """An error comes back as a value: its traceback would keep the reader and its open shards alive."""
    task = _retrieval if located.task == RETRIEVAL else _classification
    try:
        with bars_of_others(settings.quiet), _current(encoder.device):
            return task(encoder, located, settings)
    except IsogclrError as error:
        return error.with_traceback(None)
    except torch.OutOfMemoryError as error:  # no image is to blame: do not search for one
        return EvaluationError(f"{located.dataset.name}: out of memory, try a smaller --batch-size: {error}")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    found = unreadable_image(located)
    if found is not None:
        return EvaluationError(f"{located.dataset.name}: {found}; copy or fetch it again")
    return EvaluationError(f"{located.dataset.name}: clip_benchmark failed on {located.folder}: {reason}")


def _retrieval(encoder: Encoder, located: Located, settings: Settings) -> dict[str, float]:
    loader = _loader(_dataset(encoder, located), located, settings)
    image_features: list[Tensor] = []
    text_features: list[Tensor] = []
    image_of_text: list[int] = []
    batches = -(-located.images // settings.batch_size)
    for images, captions in progress_bar(loader, desc=located.dataset.title, total=batches, unit="batch"):
        first = sum(map(len, image_features))
        for number, texts in enumerate(captions, start=first):
            if not texts:
                raise EvaluationError(f"{located.dataset.name}: image {number} (from 0) has no caption")
            image_of_text += [number] * len(texts)
        image_features.append(encoder.unit_images(images))
        text_features.append(encoder.unit_texts([text for texts in captions for text in texts]))
    return retrieval_recall(
        torch.cat(image_features), torch.cat(text_features), torch.tensor(image_of_text), RECALL_AT
    )


def _classification(encoder: Encoder, located: Located, settings: Settings) -> dict[str, float]:
    from clip_benchmark.metrics import zeroshot_classification  # noqa: PLC0415

    dataset = _dataset(encoder, located)
    classes = dataset.classes
    if located.dataset.classes not in (None, len(classes)):
        raise EvaluationError(
            f"{located.dataset.name}: {len(classes):,} class names, {located.dataset.classes:,} were expected"
        )
    device = encoder.device.type
    classifier = zeroshot_classification.zero_shot_classifier(
        encoder, encoder.tokenizer, classes, dataset.templates, device, amp=False
    )
    loader = _loader(dataset, located, settings)
    logits, labels = zeroshot_classification.run_classification(encoder, classifier, loader, device, amp=False)
    if int(labels.max()) >= len(classes):
        raise EvaluationError(
            f"{located.dataset.name}: a label is {int(labels.max())}, but {len(classes):,} classes are listed: "
            "the class list is too short, or of another data set"
        )
    found = top_k_accuracy(logits, labels, TOP_K)
    return found | {"mean_per_class_recall": mean_per_class_recall(logits, labels)}


def _dataset(encoder: Encoder, located: Located) -> Any:
    from clip_benchmark.datasets.builder import build_dataset  # noqa: PLC0415

    with redirect_stdout(io.StringIO()):  # pycocotools tells what it does; tables go there
        return build_dataset(
            dataset_name=located.benchmark_name,
            root=str(located.folder),
            transform=encoder.preprocess,
            split="test",
            download=False,
            task=located.task,
        )


def _loader(dataset: Any, located: Located, settings: Settings) -> Any:
    from clip_benchmark.datasets.builder import get_dataset_collate_fn  # noqa: PLC0415

    if located.shards:
        workers = min(settings.workers, located.shards)
        batches = dataset.batched(settings.batch_size)
        return torch.utils.data.DataLoader(batches, batch_size=None, num_workers=workers)
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=settings.batch_size,
        num_workers=settings.workers,
        collate_fn=get_dataset_collate_fn(located.benchmark_name),
    )


@contextmanager
def _current(device: torch.device) -> Iterator[None]:
    """clip_benchmark hands the device's type to autocast, so the index must be that of the current device."""
    if device.type == "cuda" and device.index is not None:
        with torch.cuda.device(device):
            yield
    else:
        yield
