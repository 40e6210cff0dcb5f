"""(shard, key) → row: build, load, verify.

Read in this order; `docs/index_format.md` describes every byte.

    index.py        `ShardIndex`, open for reading: from shard and key to row, and back
    rows.py         the rows of one shard, which a data worker holds while it reads that shard
    files.py        the files of an index: layout, checks, publication
    ids.py          the name of a shard that outlives a move of the data set

    build.py        `build_index`: make an index, or extend one
    patterns.py         from what `--train-data` says to shards, or to a table
    picture_layouts.py  from the path of a set of pictures to its shards
    plan.py             which shards are known, moved, changed or new
    addresses.py        what an address means: its kind, size and time
    pool.py             list many shards at once, in processes
    picture_listing.py  list the samples of one shard of any kind
    listing.py          list the samples of a tar
    tar_headers.py      the members of an ordinary tar, without its payload
    sample_keys.py      which members make one sample, by open_clip's rules
    class_folders.py    pictures in folders
    cifar_batches.py    the files of CIFAR's official archives
    plain_pickle.py     plain data out of a pickle, without running it
    saving.py           collect new shards and rows, and write the next generation

    tar_samples.py  samples read back by key, for the report
    check.py        is an index whole, and does it still describe its shards?
"""

from isogclr.csv_table import CsvColumns
from isogclr.shard_index.build import BuildSummary, build_index
from isogclr.shard_index.index import Location, ShardIndex, ShardInfo
from isogclr.shard_index.rows import PositionRows, ShardRows

__all__ = [
    "BuildSummary",
    "CsvColumns",
    "Location",
    "PositionRows",
    "ShardIndex",
    "ShardInfo",
    "ShardRows",
    "build_index",
]
