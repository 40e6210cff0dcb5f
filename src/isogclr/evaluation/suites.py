"""Which data sets there are, and which of them make up a suite. Facts only: no torch, no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isogclr.errors import InputError

RETRIEVAL = "zeroshot_retrieval"
CLASSIFICATION = "zeroshot_classification"
LINEAR = "linear"  # of `isogclr linear`, whose data sets are no suite
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
LINEAR_DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("cifar10", "CIFAR10", LINEAR, images=10_000, classes=10),
        Dataset("cifar100", "CIFAR100", LINEAR, images=10_000, classes=100),
        Dataset("imagenet100", "ImageNet100", LINEAR, images=5_000, classes=100),
        Dataset("cifar10-lt", "CIFAR10-LT", LINEAR, images=10_000, classes=10),
        Dataset("cifar100-lt", "CIFAR100-LT", LINEAR, images=10_000, classes=100),
        Dataset("inaturalist", "iNaturalist2018", LINEAR, images=24_426, classes=8_142),
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


def known_dataset(name: str, task: str) -> Dataset | None:
    """What is known of a data set of the paper's, None of any other."""
    return (LINEAR_DATASETS if task == LINEAR else DATASETS).get(name)


def metric_names(task: str) -> tuple[str, ...]:
    """Names as clip_benchmark writes them (`acc3` and the linear ones are ours), in the order of the columns."""
    if task == LINEAR:
        parts = tuple(f"{part}_recall" for part in ("head", "middle", "tail"))
        return ("acc1", "acc5", "mean_per_class_recall", *parts, "knn_acc1")
    if task == RETRIEVAL:
        return tuple(f"{direction}_retrieval_recall@{k}" for direction in ("image", "text") for k in RECALL_AT)
    return (*(f"acc{k}" for k in TOP_K), "mean_per_class_recall")
