"""All nodes hold the same store: compared at every commit, before anything is published.

The writers of all nodes compare one digest of the blocks that they have written since the last commit. Only when
these differ do they send the digests of equal ranges of blocks, so that the message can name node and rows.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from isogclr.distributed import Messages
from isogclr.errors import StoreError
from isogclr.state import RowStore
from isogclr.state.layout import BLOCK_ROWS
from training.ranks.node import Node

_RANGES = 4096  # at most, whatever the size of the store: some 80 KB per node
_NAMED = 16  # runs of rows that a message names for each node


def check_stores_agree(store: RowStore, messages: Messages, node: Node) -> None:
    """All ranks raise if the stores of two nodes differ in what was written since the last commit."""
    if node.count == 1:
        return
    blocks = -(-store.rows // BLOCK_ROWS)
    whole = _digests(store, [0, blocks]) if node.is_first_rank else None
    if len({one[0] for one in messages.gather(whole) if one is not None}) == 1:
        return
    edges = [*range(0, blocks, -(-blocks // _RANGES)), blocks]
    own = [node.number, socket.gethostname(), _digests(store, edges)] if node.is_first_rank else None
    raise _difference([one for one in messages.gather(own) if one is not None], edges, store.rows)


def forget_changes(store: RowStore, messages: Messages, node: Node) -> None:
    """A commit is published; the node that wrote it has forgotten its changes with it."""
    if node.is_first_rank and messages.ranks.rank != 0:
        store.forget_changes()


def _digests(store: RowStore, edges: Sequence[int]) -> list[str]:
    """Of the blocks written since the last commit, with their checksums, between each pair of edges."""
    blocks, checksums = store.changed_blocks()
    parts = pairwise(np.searchsorted(blocks, edges).tolist())
    content = (blocks[first:last].tobytes() + checksums[first:last].tobytes() for first, last in parts)
    return [hashlib.blake2b(one, digest_size=8).hexdigest() for one in content]


def _difference(nodes: list[Any], edges: Sequence[int], rows: int) -> StoreError:
    """Who differs where; of each node there are its number, its host and its digests."""
    right = [_right(found) for found in zip(*(digests for _, _, digests in nodes), strict=True)]
    parts = []
    for number, host, digests in nodes:
        wrong = np.flatnonzero(np.array(digests) != np.array(right))
        if len(wrong):
            parts.append(f"node {number} ({host}) differs in rows {_row_ranges(wrong, edges, rows)}")
    return StoreError(
        f"found different state stores on {len(nodes)} nodes at a commit, expected equal ones: {'; '.join(parts)}; "
        "nothing was published: resume from the latest generation, and look at memory and disk of that node if it "
        "happens again"
    )


def _right(found: Sequence[str]) -> str:
    """What most nodes have; if no majority has it, what the first node has."""
    usual, count = Counter(found).most_common(1)[0]
    return usual if 2 * count > len(found) else found[0]


def _row_ranges(wrong: npt.NDArray[np.intp], edges: Sequence[int], rows: int) -> str:
    """The rows of the ranges with these numbers; neighbours are merged."""
    runs = np.split(wrong, np.flatnonzero(np.diff(wrong) != 1) + 1)
    bounds = [(edges[run[0]] * BLOCK_ROWS, min(edges[run[-1] + 1] * BLOCK_ROWS, rows) - 1) for run in runs]
    more = f", and in {len(bounds) - _NAMED:,} more ranges" if len(bounds) > _NAMED else ""
    return ", ".join(f"{first} to {last}" for first, last in bounds[:_NAMED]) + more
