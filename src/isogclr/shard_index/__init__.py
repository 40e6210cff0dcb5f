"""(shard, key) → row: build, load, verify.

Read in this order; `docs/index_format.md` describes every byte.

    index.py        `ShardIndex`, open for reading: from shard and key to row, and back
    rows.py         the rows of one shard, which a data worker holds while it reads that shard
    files.py        the files of an index: layout, checks, publication
    ids.py          the name of a shard that outlives a move of the data set

    build.py        `build_index`: make an index, or extend one
    patterns.py     from what `--train-data` says to shards, or to a table
    plan.py         which shards are known, moved, changed or new
    pool.py         list many shards at once, in processes
    listing.py      list the samples of one shard
    tar_headers.py  the members of an ordinary tar, without its payload
    sample_keys.py  which members make one sample, by open_clip's rules
    saving.py       collect new shards and rows, and write the next generation

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
