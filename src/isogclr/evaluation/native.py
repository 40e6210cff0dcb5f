"""The folders that clip_benchmark reads natively, checked file by file.

clip_benchmark itself downloads what it misses, leaves an empty annotation file behind when that fails, drops the
first line of Flickr30K's whatever it says, and numbers ImageNet's classes by the folders that happen to be there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isogclr.errors import EvaluationError

_SHOWN = 3
FORMS = {
    "flickr30k": "{folder}/flickr30k_test_karpathy.txt and the images it names in {folder}",
    "mscoco_captions": "{folder}/coco_test_karpathy.json and the images it names in {folder}/val2014",
    "cifar10": "{folder}/cifar-10-batches-py as torchvision unpacks it",
    "cifar100": "{folder}/cifar-100-python as torchvision unpacks it",
    "imagenet1k": "{folder}/val with a folder for each of the 1,000 WordNet ids (n01440764, …)",
}
_CIFAR_FILES = {
    "cifar10": ("cifar-10-batches-py", (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch", "batches.meta")),
    "cifar100": ("cifar-100-python", ("train", "test", "meta")),
}


@dataclass(frozen=True)
class Files:
    """What a check has seen: the files that decide the result, and the number of test images."""

    paths: tuple[Path, ...]
    images: int


def _flickr30k(folder: Path) -> tuple[str, Files]:
    annotations = folder / "flickr30k_test_karpathy.txt"
    lines = _text("flickr30k", annotations).splitlines()
    if ".jpg," in lines[0]:
        raise EvaluationError(
            f"flickr30k: {annotations} begins with a caption; clip_benchmark drops the first line: put "
            "`image,caption` above it"
        )
    names: dict[str, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        name, separator, caption = line.strip().partition(".jpg,")
        if not separator or not name or not caption.strip() or ".jpg," in caption:
            raise EvaluationError(
                f"flickr30k: {annotations}, line {number}: {line[:60]!r} is not `name.jpg,caption`"
            )
        names[f"{name}.jpg"] = number
    if not names:
        raise EvaluationError(f"flickr30k: {annotations} holds no captions, `name.jpg,caption` lines were expected")
    images = _require_all("flickr30k", folder, names, annotations)
    return "flickr30k", Files((annotations, *images), len(images))


def _mscoco(folder: Path) -> tuple[str, Files]:
    name = "mscoco_captions"
    annotations = folder / "coco_test_karpathy.json"
    try:
        content = json.loads(_text(name, annotations))
        files = {image["id"]: str(image["file_name"]) for image in content["images"]}
        owners = {caption["image_id"] for caption in content["annotations"] if str(caption["caption"]).strip()}
    except (ValueError, TypeError, KeyError) as error:
        raise EvaluationError(
            f"{name}: {annotations} is not in COCO's format (images with id and file_name, annotations with "
            f"image_id and caption): {type(error).__name__}: {error}; fetch it again"
        ) from None
    _require_pairs(name, annotations, files, owners)
    images = _require_all(name, folder / "val2014", files.values(), annotations)
    return name, Files((annotations, *images), len(images))


def _require_pairs(name: str, annotations: Path, files: dict[Any, str], owners: set[Any]) -> None:
    if not files:
        raise EvaluationError(f"{name}: {annotations} lists no images")
    strangers = sorted(map(str, owners - files.keys()))
    if strangers:
        raise EvaluationError(
            f"{name}: {annotations} has captions of {len(strangers):,} images that it does not list: "
            f"{_some(strangers)}"
        )
    silent = sorted(files[image] for image in files.keys() - owners)
    if silent:
        raise EvaluationError(f"{name}: {annotations} has no caption for {len(silent):,} images: {_some(silent)}")


def _cifar(name: str) -> Callable[[Path], tuple[str, Files]]:
    folder_name, file_names = _CIFAR_FILES[name]

    def check(folder: Path) -> tuple[str, Files]:
        batches = folder / folder_name
        missing = [f"{batches / file} is missing" for file in file_names if not (batches / file).is_file()]
        if missing:
            raise EvaluationError(f"{name}: {'; '.join(missing)}")
        # torchvision compares their checksums when it opens them, and refuses any other CIFAR
        return name, Files(tuple(batches / file for file in file_names), 10_000)

    return check


def _imagenet(folder: Path) -> tuple[str, Files]:
    from clip_benchmark.datasets.builder import all_imagenet_wordnet_ids  # noqa: PLC0415 (imports torch)

    name = "imagenet1k"
    validation = folder / "val"
    if not validation.is_dir():
        archive = folder / "ILSVRC2012_img_val.tar"
        hint = f"; {archive} is there: unpack it into folders by class" if archive.is_file() else ""
        raise EvaluationError(f"{name}: {validation} is missing{hint}")
    found = {entry.name: entry for entry in validation.iterdir() if entry.is_dir()}
    images = {wordnet: [p for p in entry.iterdir() if p.is_file()] for wordnet, entry in found.items()}
    missing = [wordnet for wordnet in all_imagenet_wordnet_ids if not images.get(wordnet)]
    if missing:
        raise EvaluationError(
            f"{name}: {validation}: {len(missing):,} of 1,000 classes have no images: {_some(missing)}"
        )
    strangers = sorted(found.keys() - set(all_imagenet_wordnet_ids))
    if strangers:
        raise EvaluationError(
            f"{name}: {validation} holds folders that are no class, which would shift all labels behind them: "
            f"{_some(strangers)}"
        )
    paths = tuple(path for files in images.values() for path in files)
    return "imagenet1k-unverified", Files(paths, len(paths))  # the same images; needs no development kit


def _text(name: str, path: Path) -> str:
    if not path.is_file():
        raise EvaluationError(f"{name}: {path} is missing")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise EvaluationError(f"{name}: {path} is no UTF-8 text: {error}") from None
    if not text.strip():
        raise EvaluationError(
            f"{name}: {path} is empty, as an interrupted download leaves it: remove it, fetch it again"
        )
    return text


def _require_all(name: str, folder: Path, files: Iterable[str], annotations: Path) -> list[Path]:
    paths = [folder / file for file in files]
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        raise EvaluationError(
            f"{name}: {len(missing):,} of the {len(paths):,} images that {annotations} names are missing in "
            f"{folder}: {_some(missing)}"
        )
    empty = [path.name for path in paths if not path.stat().st_size]
    if empty:
        raise EvaluationError(f"{name}: {len(empty):,} images in {folder} are empty files: {_some(empty)}")
    return paths


def _some(names: list[str]) -> str:
    more = f", … ({len(names):,} in all)" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


CHECKS: dict[str, Callable[[Path], tuple[str, Files]]] = {
    "flickr30k": _flickr30k,
    "mscoco_captions": _mscoco,
    "cifar10": _cifar("cifar10"),
    "cifar100": _cifar("cifar100"),
    "imagenet1k": _imagenet,
}
