"""Open a set of pictures, whichever of the three layouts it has."""

from __future__ import annotations

from isogclr.errors import DataError
from isogclr.pictures.cifar_pictures import CifarPictures
from isogclr.pictures.folder_pictures import FolderPictures
from isogclr.pictures.picture_set import Pictures
from isogclr.pictures.shard_pictures import LABEL_SUFFIX, ShardPictures
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.addresses import shard_kind
from isogclr.shard_index.files import CIFAR, FOLDER
from isogclr.shard_index.picture_layouts import picture_shards


def open_pictures(
    path: str, index: ShardIndex | None = None, split: str = "train", *, label: str = LABEL_SUFFIX
) -> Pictures:
    """The pictures at `path`.

    Args:
        path: shards as `--train-data` takes them, a folder with a folder per class, or that of CIFAR.
        index: knows the rows of the pictures; without one, rows are places in the order of the data.
        split: train or test, for CIFAR; of other data the path names the part.
        label: where shards have their labels: `cls` files, or the field of this name in `json` files.
    """
    shards = picture_shards(path, split)
    if not shards:
        raise DataError(f"{path} names no shard: expected at least one")
    kinds = {shard_kind(url) for url in shards}
    if len(kinds) > 1:
        raise DataError(f"{path} mixes shards, folders and CIFAR: name one kind of data")
    if FOLDER in kinds:
        return FolderPictures(path, shards, index)
    if CIFAR in kinds:
        return CifarPictures(shards, index)
    return ShardPictures(shards, index, label)
