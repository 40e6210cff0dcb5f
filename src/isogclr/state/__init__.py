"""One row of state for every sample: the store, its snapshots, and joint commits. No torch here.

Read in this order; `docs/store_format.md` describes every byte.

    schema.py       the columns of a row
    layout.py       the header page, and where the rows are in a file
    contract.py     `RowStore`: what every store promises, and what it refuses
    memory.py       the contract on an array, with nothing else around it

    store.py        the contract in a file: one writer process per node, all ranks read
    live.py         that file, mapped; scratch that nobody trusts after its writer has ended
    lock.py         who is the writer
    attach.py       how the other ranks join
    pending.py      updates that are not in the file yet, laid over what is read
    published.py    two shared numbers, and the argument why no rank reads a torn or old row
    writer.py       the thread that applies updates
    prefetch.py     the thread that touches the pages of a coming batch

    snapshot.py     the rows at one step, in a file that never changes
    blocks.py       one checksum per block of rows
    sparse.py       holes in files: found, left out, shared
    generations.py  joint commits: model, optimizer, data position and snapshot, together or not at all
    manifest.py     the files of a generation, with lengths and checksums

    export.py       visited rows as a table
    inspect.py      what a snapshot or a generation holds, for the command line
    faults.py       errors of the operating system in words that help
    filesystem.py   which file system a path is on
"""

from isogclr.state.contract import RowStore
from isogclr.state.export import export_state
from isogclr.state.generations import (
    STORE_SNAPSHOT,
    Generation,
    find_snapshot,
    generations,
    latest,
    load_generation,
    prune,
    remove_leftovers,
    write_generation,
)
from isogclr.state.memory import MemoryStore
from isogclr.state.schema import Schema, schema_for
from isogclr.state.snapshot import Snapshot, SnapshotInfo
from isogclr.state.store import StateStore

__all__ = [
    "STORE_SNAPSHOT",
    "Generation",
    "MemoryStore",
    "RowStore",
    "Schema",
    "Snapshot",
    "SnapshotInfo",
    "StateStore",
    "export_state",
    "find_snapshot",
    "generations",
    "latest",
    "load_generation",
    "prune",
    "remove_leftovers",
    "schema_for",
    "write_generation",
]
