"""Find a data set below the data root and check its files, before anything runs. Downloads nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from isogclr.errors import EvaluationError
from isogclr.evaluation import native, webdataset_copy
from isogclr.evaluation.suites import Dataset

GUIDE = "docs/evaluation.md says how to get it and where to put it"


@dataclass(frozen=True)
class Located:
    """A data set whose files are complete, as far as their names, sizes and headers tell.

    Attributes:
        benchmark_name: what clip_benchmark calls it in this form, `wds/flickr30k` for a copy.
        shards: number of tar files, 0 for a native folder.
        stamp: changes whenever a file is replaced; part of the key that results are cached by.
    """

    dataset: Dataset
    task: str
    benchmark_name: str
    folder: Path
    images: int
    shards: int
    stamp: str

    @property
    def comparable(self) -> bool:
        """Whether it is the test split that the paper's figures are of."""
        return self.images == self.dataset.images


def locate(dataset: Dataset, root: Path) -> Located:
    """The native folder, or else a webdataset copy. If part of it is there, an error names the rest."""
    problems: list[EvaluationError] = []
    for find in (_native, _copy):
        try:
            found = find(dataset, root)
        except EvaluationError as error:
            problems.append(error)
            continue
        if found is not None:
            return found
    if not problems:
        raise EvaluationError(f"{dataset.name}: {_looked_for(dataset, root)}")
    if len(problems) == 1:
        raise problems[0]
    both = "; ".join(str(problem).removeprefix(f"{dataset.name}: ") for problem in problems)
    raise EvaluationError(f"{dataset.name}: {both}")


def _native(dataset: Dataset, root: Path) -> Located | None:
    folder = root / dataset.name
    check = native.CHECKS.get(dataset.name)
    if check is None or not folder.is_dir() or webdataset_copy.is_copy(folder):
        return None
    assert dataset.task is not None
    name, files = check(folder)
    return Located(
        dataset=dataset,
        task=dataset.task,
        benchmark_name=name,
        folder=folder,
        images=files.images,
        shards=0,
        stamp=_stamp(folder, files.paths),
    )


def _copy(dataset: Dataset, root: Path) -> Located | None:
    folder = next((folder for folder in _copy_folders(dataset, root) if webdataset_copy.is_copy(folder)), None)
    if folder is None:
        return None
    copy = webdataset_copy.check(dataset.name, folder, dataset.classes)
    if dataset.task not in (None, copy.task):
        raise EvaluationError(
            f"{dataset.name}: {folder} is a copy for {copy.task}, {dataset.task} was expected; dataset_type.txt "
            "holds the word `retrieval` for a retrieval data set, and is missing otherwise"
        )
    return Located(
        dataset=dataset,
        task=copy.task,
        benchmark_name=f"wds/{dataset.name}",
        folder=folder,
        images=copy.images,
        shards=copy.shards,
        stamp=_stamp(folder, copy.paths),
    )


def _copy_folders(dataset: Dataset, root: Path) -> list[Path]:
    names = (dataset.name, f"wds_{dataset.name}", f"wds/{dataset.name}", *dataset.copies)
    return [root / name for name in names]


def _looked_for(dataset: Dataset, root: Path) -> str:
    copies = ", ".join(str(folder) for folder in _copy_folders(dataset, root))
    form = native.FORMS.get(dataset.name)
    own = f"expected {form.format(folder=root / dataset.name)}, or " if form else "expected "
    return f"not found; {own}a webdataset copy (test/nshards.txt, test/0.tar, …) in one of {copies}; {GUIDE}"


def _stamp(folder: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        state = path.stat()
        digest.update(f"{path.relative_to(folder)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()
