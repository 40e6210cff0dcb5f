"""Webdataset copies in clip_benchmark's layout: text files that describe them, and numbered tar files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from isogclr.errors import EvaluationError, ShardIndexError
from isogclr.evaluation.suites import CLASSIFICATION, RETRIEVAL
from isogclr.shard_index.listing import list_shard

SPLIT = "test"


@dataclass(frozen=True)
class Copy:
    """What the description and the tar headers of a copy say."""

    task: str
    images: int
    shards: int
    paths: tuple[Path, ...]


def is_copy(folder: Path) -> bool:
    """Whether somebody meant this folder to be one."""
    return (folder / SPLIT / "nshards.txt").is_file() or (folder / SPLIT / "0.tar").is_file()


def check(name: str, folder: Path, classes: int | None) -> Copy:
    """Every file is there, every shard ends where it should, and the class list has the right length."""
    count = _number_of_shards(name, folder)
    shards = [folder / SPLIT / f"{number}.tar" for number in range(count)]
    missing = [f"{shard} is missing" for shard in shards if not shard.is_file()]
    kind, task = folder / "dataset_type.txt", CLASSIFICATION
    if kind.is_file():
        task = _task(name, kind)
    described = [kind] if kind.is_file() else []
    if task == CLASSIFICATION:
        described += [folder / "classnames.txt", folder / "zeroshot_classification_templates.txt"]
        missing += [f"{path} is missing" for path in described if not path.is_file()]
    if missing:
        raise EvaluationError(f"{name}: {'; '.join(missing)}")
    if task == CLASSIFICATION:
        _check_classes(name, folder, classes)
    images = sum(_samples(name, shard) for shard in shards)
    if not images:
        raise EvaluationError(f"{name}: the {count} shards in {folder / SPLIT} hold no samples")
    return Copy(task, images, count, (*described, folder / SPLIT / "nshards.txt", *shards))


def _number_of_shards(name: str, folder: Path) -> int:
    path = folder / SPLIT / "nshards.txt"
    if not path.is_file():
        raise EvaluationError(f"{name}: {path} is missing: a file with the number of shards in it")
    text = path.read_text(encoding="utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise EvaluationError(f"{name}: {path} holds {text[:20]!r}, the number of shards was expected")
    return int(text)


def _task(name: str, path: Path) -> str:
    text = path.read_text(encoding="utf-8", errors="replace").strip().lower()
    if text == RETRIEVAL.removeprefix("zeroshot_"):
        return RETRIEVAL
    if text == "classification":
        return CLASSIFICATION
    raise EvaluationError(f"{name}: {path} holds {text[:20]!r}; `retrieval` and `classification` can be measured")


def _check_classes(name: str, folder: Path, classes: int | None) -> None:
    listed = (folder / "classnames.txt").read_text(encoding="utf-8").splitlines()
    blank = [number for number, line in enumerate(listed, start=1) if not line.strip()]
    if not listed or blank:
        where = f"line {blank[0]} is empty" if blank else "it is empty"
        raise EvaluationError(f"{name}: {folder / 'classnames.txt'}: {where}; one class a line was expected")
    if classes is not None and len(listed) != classes:
        raise EvaluationError(
            f"{name}: {folder / 'classnames.txt'} lists {len(listed):,} classes, {classes:,} were expected"
        )
    path = folder / "zeroshot_classification_templates.txt"
    templates = path.read_text(encoding="utf-8").splitlines()
    wrong = [template for template in templates if "{c}" not in template]
    if not templates or wrong:
        found = f"{wrong[0][:60]!r}" if wrong else "nothing"
        raise EvaluationError(f"{name}: {path} holds {found}; every line needs {{c}} where the class goes")


def _samples(name: str, shard: Path) -> int:
    try:
        listing = list_shard(str(shard))
    except ShardIndexError as error:
        raise EvaluationError(f"{name}: {error}") from None
    if listing.notes:
        raise EvaluationError(f"{name}: {'; '.join(listing.notes)}; copy or make it again")
    return len(listing.ends)
