"""(shard, key) → row: build, load, verify.

`index.py` is the open index and the place to start; `build.py` makes one: it expands the sources (`patterns.py`),
reads tar headers (`listing.py`, `tar_headers.py`, `sample_keys.py`, in parallel by `pool.py`), decides which shards
are known (`plan.py`, `ids.py`) and writes (`saving.py`, `files.py`). `tar_samples.py` reads samples back.
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
