"""One row of state for every sample: the store, its snapshots, and joint commits. No torch here."""

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
from isogclr.state.schema import GLOBAL_TEMPERATURE, ISOGCLR, ISOGCLR_ADAM, STATELESS, Schema, schema_for
from isogclr.state.snapshot import Snapshot, SnapshotInfo
from isogclr.state.store import StateStore

__all__ = [
    "GLOBAL_TEMPERATURE",
    "ISOGCLR",
    "ISOGCLR_ADAM",
    "STATELESS",
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
