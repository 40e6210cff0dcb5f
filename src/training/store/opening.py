"""The shard index and the state store of a run: built, restored and opened on every node."""

from __future__ import annotations

import logging
from pathlib import Path

from isogclr.distributed import Messages
from isogclr.errors import IndexNotFoundError, ShardIndexError, TrainingError
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.picture_layouts import picture_shards
from isogclr.state import RowStore, Schema, StateStore
from isogclr.state.lock import StoreLock, lock_path
from training.open_clip_bridge import expand_urls
from training.ranks.node import Node
from training.settings import CSV, PICTURES, SYNTHETIC, DataSettings
from training.store.placement import StateFolder

SYNTHETIC_FINGERPRINT = "synthetic"


def open_index(config: DataSettings, path: Path, messages: Messages, node: Node) -> ShardIndex | None:
    """The index of the training data on every rank, built on first use.

    Rank 0 builds. The first rank of another node builds only if it does not see what rank 0 has built.
    """
    if config.kind == SYNTHETIC:
        return None
    if messages.ranks.rank == 0:
        _build(config, path)
    messages.barrier()
    if node.is_first_rank and messages.ranks.rank != 0:
        try:
            ShardIndex.load(path)
        except IndexNotFoundError:
            _build(config, path)
    messages.barrier()
    index = ShardIndex.load(path)
    _check_equal(messages, index.fingerprint, config.flag)
    return index


def _build(config: DataSettings, path: Path) -> None:
    assert config.train_data is not None
    is_csv = config.kind == CSV
    if not is_csv and _is_current(config, path):
        return
    logging.info(f"Building the shard index at {path}")
    index = ShardIndex.build(
        _shards(config) if config.kind == PICTURES else config.train_data,
        path,
        progress=True,
        dataset_type="csv" if is_csv else "webdataset",
        csv_columns=config.csv_columns if is_csv else None,
    )
    logging.info(f"The index has {index.number_of_rows:,} rows of {index.number_of_shards:,} shards")


def _is_current(config: DataSettings, path: Path) -> bool:
    """Whether an index is there that holds all shards, by their sizes: then it may be read-only."""
    try:
        ShardIndex.load(path).check(_shards(config))
    except (ShardIndexError, OSError):
        return False
    return True


def _shards(config: DataSettings) -> list[str]:
    assert config.train_data is not None
    return picture_shards(config.train_data) if config.kind == PICTURES else expand_urls(config.train_data)[0]


def _check_equal(messages: Messages, fingerprint: str, flag: str) -> None:
    found = messages.gather(fingerprint)
    if len(set(found)) > 1:
        ranks = ", ".join(f"rank {rank}: {one[:16]}…" for rank, one in enumerate(found))
        raise TrainingError(
            f"ranks have different shard indexes ({ranks}), expected one: they see different shards; give all "
            f"nodes the same {flag}, or one --index on a shared file system"
        )


def live_file(folder: StateFolder, node: Node) -> Path:
    """The live file of a node: numbered, since two nodes of a test may share a disk."""
    return folder.path / f"node-{node.number:05d}.live"


def check_not_in_use(live: Path) -> None:
    """Tell a second run of one name so before it looks for commits: the first may prune them meanwhile."""
    lock = lock_path(live)
    if lock.exists():
        StoreLock(lock).release()


def open_store(
    folder: StateFolder,
    schema: Schema,
    rows: int,
    index: ShardIndex | None,
    snapshot: Path | None,
    messages: Messages,
    node: Node,
) -> RowStore:
    """The store of this node: made by its first rank, from a snapshot or empty, and opened by the others."""
    path = live_file(folder, node)
    fingerprint = SYNTHETIC_FINGERPRINT if index is None else index.fingerprint
    store: StateStore | None = None
    if node.is_first_rank:
        if snapshot is None:
            store = StateStore.create(path, schema, rows, fingerprint)
        else:
            rows_at = None if index is None else index.rows_at
            store = StateStore.restore(path, snapshot, schema, rows, fingerprint, rows_at)
    runs = messages.gather(None if store is None else store.run)
    if store is None:
        store = StateStore.open(path, fingerprint, runs[node.first_rank])
    return store
