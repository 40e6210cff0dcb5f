"""Which data sets there are, and which of them make up a suite. Facts only: no torch, no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isogclr.errors import InputError

RETRIEVAL = "zeroshot_retrieval"
CLASSIFICATION = "zeroshot_classification"
TASKS = (RETRIEVAL, CLASSIFICATION)
RECALL_AT = (1, 5, 10)
TOP_K = (1, 3, 5)


@dataclass(frozen=True)
class Dataset:
    """A data set by clip_benchmark's name. What is None is not known before the files are seen.

    Attributes:
        images: number of images in the official test split; other numbers are not comparable to the paper's.
        copies: other names of folders with a webdataset copy.
    """

    name: str
    title: str
    task: str | None = None
    images: int | None = None
    classes: int | None = None
    copies: tuple[str, ...] = ()


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("flickr30k", "Flickr30K", RETRIEVAL, images=1_000),
        Dataset("mscoco_captions", "MSCOCO", RETRIEVAL, images=5_000),
        Dataset("cifar10", "CIFAR10", CLASSIFICATION, images=10_000, classes=10, copies=("wds_vtab-cifar10",)),
        Dataset("cifar100", "CIFAR100", CLASSIFICATION, images=10_000, classes=100, copies=("wds_vtab-cifar100",)),
        Dataset("imagenet1k", "ImageNet1K", CLASSIFICATION, images=50_000, classes=1_000),
    )
}
SUITES = {"paper": tuple(DATASETS)}


def choose(suite: str, names: Sequence[str] = (), task: str | None = None) -> tuple[Dataset, ...]:
    """The data sets of a suite, or those named instead, of one task or of both.

    A name that is not of the paper's may be any webdataset copy in clip_benchmark's layout.
    """
    if suite not in SUITES:
        raise InputError(f"there is no suite {suite!r}; choose from {', '.join(SUITES)}")
    if task is not None and task not in TASKS:
        raise InputError(f"there is no task {task!r}; choose from {', '.join(TASKS)}")
    wanted = dict.fromkeys(name.removeprefix("wds/") for name in names or SUITES[suite])
    found = tuple(DATASETS.get(name) or Dataset(name, title=name) for name in wanted)
    chosen = tuple(dataset for dataset in found if task is None or dataset.task in (None, task))
    if not chosen:
        raise InputError(f"none of {', '.join(wanted)} is measured by {task}")
    return chosen


def metric_names(task: str) -> tuple[str, ...]:
    """Names as clip_benchmark writes them (`acc3` is ours), in the order of the paper's columns."""
    if task == RETRIEVAL:
        return tuple(f"{direction}_retrieval_recall@{k}" for direction in ("image", "text") for k in RECALL_AT)
    return (*(f"acc{k}" for k in TOP_K), "mean_per_class_recall")
