"""Labelled pictures, known by row: shards, a folder per class, CIFAR.

Reading order:

    picture_set.py      `Pictures`: what the three layouts have in common
    folder_pictures.py  a folder per class
    cifar_pictures.py   CIFAR-10 and CIFAR-100 as their archives are unpacked
    shard_pictures.py   webdataset shards, with labels or without
    opening_set.py      `open_pictures`: which of the three it is
    class_labels.py     labels of one set in the numbering of another; what an evaluation needs of them
    long_tail.py        a long-tailed subset, and the file that says which pictures it kept
    preprocessing.py    from a picture to the input of a model, without augmentation

`isogclr/shard_index` lists what is in folders and archives (`picture_layouts.py`); a class folder, or a file of
CIFAR, is a shard there.
"""

from isogclr.pictures.class_labels import labels_in, needed_labels
from isogclr.pictures.long_tail import LongTail, keep_long_tail, long_tail_sizes
from isogclr.pictures.opening_set import open_pictures
from isogclr.pictures.picture_set import Pictures
from isogclr.shard_index.picture_layouts import picture_shards

__all__ = [
    "LongTail",
    "Pictures",
    "keep_long_tail",
    "labels_in",
    "long_tail_sizes",
    "needed_labels",
    "open_pictures",
    "picture_shards",
]
