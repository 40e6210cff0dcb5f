"""Let clip_benchmark fetch a data set: only on demand, and never leaving half of one behind unseen."""

from __future__ import annotations

from pathlib import Path

from isogclr.errors import EvaluationError
from isogclr.evaluation import native
from isogclr.evaluation.suites import Dataset


def download(dataset: Dataset, root: Path) -> None:
    """Into `root/NAME`. What then is there is for `locate` to judge."""
    if dataset.name not in native.CHECKS:
        raise EvaluationError(f"{dataset.name}: clip_benchmark does not know where to fetch it from")
    from clip_benchmark.datasets.builder import build_dataset  # noqa: PLC0415 (imports torch)

    folder = root / dataset.name
    (folder if dataset.name == "mscoco_captions" else root).mkdir(parents=True, exist_ok=True)  # it expects that
    try:
        build_dataset(dataset_name=dataset.name, root=str(folder), split="test", download=True, task=dataset.task)
    except (Exception, SystemExit) as error:  # it exits when the kaggle client is missing
        reason = (
            "the kaggle client is missing" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        )
        raise EvaluationError(f"{dataset.name}: download into {folder} failed: {reason}") from error
    finally:
        _remove_empty_files(folder)


def _remove_empty_files(folder: Path) -> None:
    """wget creates its output file before it knows that there is nothing to write."""
    for path in folder.glob("*") if folder.is_dir() else ():
        if path.is_file() and not path.stat().st_size:
            path.unlink()
