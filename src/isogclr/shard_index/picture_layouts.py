"""From the path of a data set of pictures to its shards: tars, class folders, or the files of CIFAR."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from isogclr.errors import DataError
from isogclr.shard_index import cifar_batches
from isogclr.shard_index.addresses import local_path
from isogclr.shard_index.class_folders import SUFFIXES, folders_with_pictures
from isogclr.shard_index.patterns import expand_sources

_PACKED = re.compile(r"cifar-100?-(python|binary|matlab)\.(tar\.gz|tgz|tar)")


def picture_shards(source: str | Sequence[str], split: str = "train") -> list[str]:
    """The addresses of all shards of a data set.

    Args:
        source: a folder, or what `--train-data` takes.
        split: the part of CIFAR; other data is named part by part.
    """
    is_folder = isinstance(source, str) and Path(source).is_dir()  # whatever is in its name: braces, `::`
    urls = [source] if is_folder else expand_sources(source)
    return [shard for url in urls for shard in _shards_at(str(url), split)]


def _shards_at(url: str, split: str) -> list[str]:
    path = local_path(url)
    if path is None or not Path(path).is_dir():
        if path is not None and _PACKED.fullmatch(Path(path).name):
            raise DataError(
                f"{path} is the archive itself: unpack it (`tar xf`), and name the folder that comes out"
            )
        return [url]
    return _in_folder(Path(path), split)


def _in_folder(folder: Path, split: str) -> list[str]:
    found = cifar_batches.find_layout(folder)
    if found is not None:
        return cifar_batches.batch_files(*found, split)
    folders = folders_with_pictures(str(folder))
    if not folders:
        tars = sorted(folder.glob("*.tar"))
        hint = f"; for its shards name the files, as in {folder}/{{000..{len(tars) - 1:03d}}}.tar" if tars else ""
        raise DataError(
            f"{folder} holds no pictures: expected CLASS/*.png or the like ({', '.join(sorted(SUFFIXES))}), or the "
            f"folder of CIFAR (cifar-10-batches-py, cifar-100-python){hint}"
        )
    return folders
