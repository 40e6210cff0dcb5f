"""The body of `isogclr linear`: from checkpoints and pictures to files and a table beside the paper's."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isogclr.errors import ConfigError, EvaluationError, IsogclrError
from isogclr.evaluation.command import Report, write_tables
from isogclr.evaluation.linear_data import LinearData, PictureSets, choose_data, open_sets
from isogclr.evaluation.linear_measure import LinearPlan, Measured, measure_backbone
from isogclr.evaluation.picture_features import Reading
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
from isogclr.models.checkpoints import content_hash
from isogclr.models.encoder import usable_device
from isogclr.models.view_checkpoints import LoadedBackbone, load_backbone
from isogclr.pictures.long_tail import check_imbalance

_PACKAGES = {
    "torch": "torch",
    "torchvision": "torchvision",
    "pillow": "pillow",
}  # whose releases may round otherwise
_PRECISION = "fp32"


@dataclass(frozen=True)
class LinearRequest:
    """What the command line asks for.

    Attributes:
        test_data: None for CIFAR's own test part.
        dataset: name in the tables; None to take it from the data.
        label: where shards have their labels, see `open_pictures`.
        imbalance: of the classifier's training part; None for the checkpoint's own, as its seed.
    """

    checkpoints: tuple[Path, ...]
    data: str
    output: Path
    test_data: str | None = None
    dataset: str | None = None
    label: str = "cls"
    imbalance: float | None = None
    long_tail_seed: int | None = None
    plan: LinearPlan = field(default_factory=LinearPlan)
    device: str = "cpu"
    workers: int = 0
    seeds: bool = False
    ablations: bool = False
    recompute: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.imbalance is not None:
            check_imbalance(self.imbalance)
        if self.workers < 0:
            raise ConfigError([f"{self.workers} workers: expected none or more"])


def run_linear(request: LinearRequest) -> int:
    """Exit code 0 if every checkpoint was measured, 1 otherwise."""
    report = Report(request.quiet)
    reading = Reading(usable_device(request.device), request.workers, request.plan.settings.batch_size)
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
    loaded = load_backbone(checkpoint, reading.device)
    data = _data_of(loaded, sets, request)
    located, plan = data.located, request.plan
    key = cache_key(content_hash(checkpoint), None, located, _PRECISION, _PACKAGES, {"linear": plan.described()})
    found = None if request.recompute else find_cached(request.output, checkpoint, located, key)
    if found is not None:
        report.say(f"{checkpoint}: the result is there already")
        return found
    report.say(
        f"{checkpoint}: {loaded.name}, {len(data.train):,} training pictures of {len(data.classes):,} classes "
        f"(imbalance {data.imbalance:g}), {len(data.test):,} test pictures"
    )
    try:
        measured = measure_backbone(loaded, data, reading, plan, report.say)
    except IsogclrError as error:
        raise EvaluationError(f"{checkpoint}: {error}") from error
    if (doubt := measured.doubt(plan)) is not None:
        print(f"isogclr: warning: {checkpoint}: {doubt}", file=sys.stderr)
    result = _result(checkpoint, loaded, data, measured)
    path = result_path(request.output, checkpoint, located, key)
    save_result(path, result, located, key, _PRECISION, _facts(data, measured, plan))
    return result


def _data_of(loaded: LoadedBackbone, sets: PictureSets, request: LinearRequest) -> LinearData:
    """With the long tail that the backbone was trained on, unless another one, or none, was asked for."""
    details, path = loaded.weights.details, loaded.weights.path
    imbalance = request.imbalance if request.imbalance is not None else details.get("imbalance") or 1.0
    seed = request.long_tail_seed if request.long_tail_seed is not None else details.get("long_tail_seed") or 0
    run = path.parent.parent if path.parent.name == "checkpoints" else None
    return choose_data(sets, float(imbalance), int(seed), request.dataset, run)


def _result(checkpoint: Path, loaded: LoadedBackbone, data: LinearData, measured: Measured) -> Result:
    details = {"pretrained": False, **loaded.weights.details}
    return Result(
        dataset=data.located.dataset.name,
        task=LINEAR,
        checkpoint=str(checkpoint),
        identity=identity_of(loaded.name, details, loaded.weights.epoch, run_configuration(checkpoint)),
        images=data.located.images,
        comparable=data.located.comparable,
        metrics=measured.metrics,
    )


def _facts(data: LinearData, measured: Measured, plan: LinearPlan) -> dict[str, Any]:
    """What a JSON file says beyond the metrics."""
    return {
        "settings": plan.described(),
        "imbalance": data.imbalance,
        "train_images": len(data.train),
        "train_loss": measured.train_loss,
        "classes": [
            {"name": name, "train_images": size, "recall": recall}
            for name, size, recall in zip(data.classes, data.sizes, measured.recalls, strict=True)
        ],
    }
