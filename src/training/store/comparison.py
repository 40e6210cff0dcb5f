"""All nodes hold the same store: compared at every commit, before anything is published.

The writers of all nodes compare a digest of the blocks that they have written since the last commit. Only when the
digests differ do they look for the blocks, by halving ranges: messages stay small for a store of any size.
"""

from __future__ import annotations

import hashlib
import socket
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from isogclr.distributed import Messages
from isogclr.errors import StoresDifferError
from isogclr.state import RowStore
from isogclr.state.blocks import Checksums
from isogclr.state.layout import BLOCK_ROWS
from training.ranks.node import Node

_PARTS = 16  # of a range in which nodes differ
_NAMED_RANGES = 16  # that a message names, and that are looked into at a time

Range = tuple[int, int]  # of blocks: first, last + 1


@dataclass(frozen=True)
class Written:
    """Blocks written since the last commit, in increasing order, with their checksums."""

    blocks: npt.NDArray[np.int64]
    checksums: Checksums

    def digest(self, where: Range) -> str:
        """Of the blocks in a range."""
        first, last = np.searchsorted(self.blocks, where)
        hashed = hashlib.blake2b(self.blocks[first:last].tobytes(), digest_size=16)
        hashed.update(self.checksums[first:last].tobytes())
        return hashed.hexdigest()


def check_stores_agree(store: RowStore, messages: Messages, node: Node) -> None:
    """All ranks raise if the stores of two nodes differ in what was written since the last commit."""
    if node.count == 1:
        return
    own = Written(*store.changed_blocks()) if node.is_first_rank else None
    suspects = _differing([(0, -(-store.rows // BLOCK_ROWS))], own, messages)
    while any(last - first > 1 for first, last in suspects):
        suspects = _differing([part for one in suspects for part in _parts(one)], own, messages)
    if suspects:
        raise _difference(suspects, own, messages, node, store.rows)


def forget_changes(store: RowStore, messages: Messages, node: Node) -> None:
    """A commit is published; the node that wrote it has forgotten its changes with it."""
    if node.is_first_rank and messages.ranks.rank != 0:
        store.forget_changes()


def _differing(ranges: list[Range], own: Written | None, messages: Messages) -> list[Range]:
    """Those of the ranges whose digests are not the same on all nodes, the first few of them."""
    digests = [one for one in messages.gather(own and [own.digest(where) for where in ranges]) if one is not None]
    return [where for where, *found in zip(ranges, *digests, strict=True) if len(set(found)) > 1][:_NAMED_RANGES]


def _parts(where: Range) -> list[Range]:
    edges = np.unique(np.linspace(*where, _PARTS + 1).astype(int)).tolist()
    return list(pairwise(edges))


def _difference(
    suspects: list[Range], own: Written | None, messages: Messages, node: Node, rows: int
) -> StoresDifferError:
    """Who differs where. What most nodes have counts as right; if no majority has it, what the first node has."""
    report = None if own is None else [node.number, socket.gethostname(), [own.digest(one) for one in suspects]]
    nodes = [one for one in messages.gather(report) if one is not None]
    wrong: dict[str, list[int]] = {}
    for position, (block, _) in enumerate(suspects):
        found = Counter(digests[position] for _, _, digests in nodes)
        (usual, count), *_ = found.most_common()
        right = usual if 2 * count > len(nodes) else nodes[0][2][position]
        for number, host, digests in nodes:
            if digests[position] != right:
                wrong.setdefault(f"node {number} ({host})", []).append(block)
    parts = [f"{name} differs in rows {_row_ranges(blocks, rows)}" for name, blocks in wrong.items()]
    more = ", and perhaps in more" if len(suspects) == _NAMED_RANGES else ""
    return StoresDifferError(
        f"found different state stores on {len(nodes)} nodes at a commit, expected equal ones: {'; '.join(parts)}"
        f"{more}; nothing was published: resume from the latest generation, and look at memory and disk of that "
        "node if it happens again"
    )


def _row_ranges(blocks: list[int], rows: int) -> str:
    merged: list[list[int]] = []
    for block in blocks:
        if merged and merged[-1][1] == block:
            merged[-1][1] = block + 1
        else:
            merged.append([block, block + 1])
    return ", ".join(f"{first * BLOCK_ROWS} to {min(last * BLOCK_ROWS, rows) - 1}" for first, last in merged)
