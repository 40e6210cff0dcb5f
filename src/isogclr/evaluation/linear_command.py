"""The body of `isogclr linear`: from checkpoints and pictures to files and a table beside the paper's."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isogclr.errors import ConfigError, EvaluationError, IsogclrError
from isogclr.evaluation.command import Report, write_tables
from isogclr.evaluation.knn import NEIGHBOURS, TEMPERATURE, knn_top1
from isogclr.evaluation.linear import LinearSettings, cached_batches, measure_classifier, train_classifier
from isogclr.evaluation.linear_data import LinearData, PictureSets, choose_data, open_sets
from isogclr.evaluation.picture_features import Reading, augmentation, augmented_batches, plain_features
from isogclr.evaluation.results import (
    Result,
    cache_key,
    find_cached,
    identity_of,
    make_results_folder,
    result_path,
    run_configuration,
    save_result,
)
from isogclr.evaluation.suites import LINEAR
from isogclr.models.checkpoints import content_hash, read_weights
from isogclr.models.encoder import usable_device
from isogclr.models.view_checkpoints import LoadedBackbone, load_backbone
from isogclr.pictures.long_tail import check_imbalance

if TYPE_CHECKING:
    from torch import nn

_PACKAGES = {"torch": "torch", "torchvision": "torchvision", "pillow": "pillow"}
_EPOCHS_TOLD = 10  # lines of progress


@dataclass(frozen=True)
class LinearRequest:
    """What the command line asks for.

    Attributes:
        test_data: None for CIFAR's own test part.
        dataset: name in the tables; None to take it from the data.
        label: where shards have their labels, see `open_pictures`.
        imbalance: of the classifier's training part; None for the checkpoint's own.
        cached: features once, by the plain transform, instead of new ones in each epoch, augmented.
    """

    checkpoints: tuple[Path, ...]
    data: str
    output: Path
    test_data: str | None = None
    dataset: str | None = None
    label: str = "cls"
    imbalance: float | None = None
    long_tail_seed: int | None = None
    cached: bool = False
    settings: LinearSettings = field(default_factory=LinearSettings)
    neighbours: int = NEIGHBOURS
    temperature: float = TEMPERATURE
    device: str = "cpu"
    workers: int = 0
    seeds: bool = False
    ablations: bool = False
    recompute: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.imbalance is not None:
            check_imbalance(self.imbalance)
        problems = []
        if self.neighbours < 1:
            problems.append(f"{self.neighbours} neighbours: expected one or more")
        if not self.temperature > 0:
            problems.append(f"kNN temperature {self.temperature}: expected a number above 0")
        if self.workers < 0:
            problems.append(f"{self.workers} workers: expected none or more")
        if problems:
            raise ConfigError(problems)


def run_linear(request: LinearRequest) -> int:
    """Exit code 0 if every checkpoint was measured, 1 otherwise."""
    report = Report(request.quiet)
    reading = Reading(usable_device(request.device), request.workers, request.settings.batch_size)
    sets = open_sets(request.data, request.test_data, request.label)
    make_results_folder(request.output)
    results = []
    for checkpoint in dict.fromkeys(request.checkpoints):
        try:
            results.append(_evaluate(checkpoint, sets, reading, request, report))
        except IsogclrError as error:
            report.fail(error)
    if results:
        write_tables(results, request.output, request.seeds, request.ablations)
    if report.failures:
        print(f"isogclr: {report.failures} failed, {len(results)} measured or cached", file=sys.stderr)
    return 1 if report.failures else 0


def _evaluate(
    checkpoint: Path, sets: PictureSets, reading: Reading, request: LinearRequest, report: Report
) -> Result:
    weights = read_weights(checkpoint)
    loaded = load_backbone(checkpoint, reading.device, weights)
    data = _data_of(loaded, sets, request)
    key = cache_key(content_hash(checkpoint), None, data.located, "fp32", _PACKAGES, {"linear": _settings(request)})
    if not request.recompute:
        found = find_cached(request.output, checkpoint, data.located, key)
        if found is not None:
            report.say(f"{checkpoint}: the result is there already")
            return found
    report.say(
        f"{checkpoint}: {loaded.name}, {len(data.train):,} training pictures of {len(data.classes):,} classes "
        f"(imbalance {data.imbalance:g}), {len(data.test):,} test pictures"
    )
    try:
        metrics, recalls = _measure(loaded, data, reading, request, report)
    except IsogclrError as error:
        raise EvaluationError(f"{checkpoint}: {error}") from error
    result = Result(
        dataset=data.located.dataset.name,
        task=LINEAR,
        checkpoint=str(checkpoint),
        identity=_identity(checkpoint, loaded),
        images=data.located.images,
        comparable=data.located.comparable,
        metrics=metrics,
    )
    facts = {"settings": _settings(request), "train_images": len(data.train), "imbalance": data.imbalance}
    facts["classes"] = [
        {"name": name, "train_images": size, "recall": recall}
        for name, size, recall in zip(data.classes, data.sizes, recalls, strict=True)
    ]
    path = result_path(request.output, checkpoint, data.located, key)
    save_result(path, result, data.located, key, "fp32", facts)
    return result


def _data_of(loaded: LoadedBackbone, sets: PictureSets, request: LinearRequest) -> LinearData:
    """With the long tail that the backbone was trained on, unless another one, or none, was asked for."""
    details, path = loaded.weights.details, loaded.weights.path
    imbalance = request.imbalance if request.imbalance is not None else details.get("imbalance") or 1.0
    seed = request.long_tail_seed if request.long_tail_seed is not None else details.get("long_tail_seed") or 0
    run = path.parent.parent if path.parent.name == "checkpoints" else None
    return choose_data(sets, float(imbalance), int(seed), request.dataset, run)


def _settings(request: LinearRequest) -> dict[str, Any]:
    """All that changes a result."""
    return {
        **asdict(request.settings),
        "cached": request.cached,
        "neighbours": request.neighbours,
        "temperature": request.temperature,
    }


def _identity(checkpoint: Path, loaded: LoadedBackbone) -> Any:
    details = {"pretrained": False, **loaded.weights.details}
    return identity_of(loaded.name, details, loaded.weights.epoch, run_configuration(checkpoint))


def _measure(
    loaded: LoadedBackbone, data: LinearData, reading: Reading, request: LinearRequest, report: Report
) -> tuple[dict[str, float], list[float | None]]:
    """The classifier's figures, and the neighbours' beside them: those always by the plain transform."""
    preprocessing = loaded.preprocessing()
    train = plain_features(loaded.backbone, data.train, preprocessing, reading)
    test = plain_features(loaded.backbone, data.test, preprocessing, reading)
    train_labels, test_labels = (part.labels.to(reading.device) for part in (data.train, data.test))
    nearest = knn_top1(
        train, train_labels, test, test_labels, neighbours=request.neighbours, temperature=request.temperature
    )
    report.say(f"kNN {100 * nearest:.2f} %")
    if request.cached:
        batches = cached_batches(train, train_labels, request.settings)
    else:
        random = augmentation(preprocessing.image_size, preprocessing.to_input())
        batches = augmented_batches(loaded.backbone, data.train, random, request.settings, reading)

    def tell(epoch: int, loss: float) -> None:
        if epoch == request.settings.epochs or epoch % -(-request.settings.epochs // _EPOCHS_TOLD) == 0:
            report.say(f"linear classifier: epoch {epoch} of {request.settings.epochs}, loss {loss:.4f}")

    classifier: nn.Linear = train_classifier(
        batches, loaded.width, len(data.classes), request.settings, reading.device, tell
    )
    metrics, recalls = measure_classifier(classifier, test, test_labels, data.sizes)
    return {**metrics, "knn_acc1": nearest}, recalls
