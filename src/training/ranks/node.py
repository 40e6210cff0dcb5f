"""Which ranks share a node, and where a node keeps its live state."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from isogclr.distributed import Messages


@dataclass(frozen=True)
class Node:
    """The node of this rank.

    Args:
        number: counted in the order of their first ranks.
        count: of all nodes.
        first_rank: of this node; it writes the node's store.
        is_first_rank: whether this rank is it.
    """

    number: int
    count: int
    first_rank: int
    is_first_rank: bool


def node_name() -> str:
    """What tells this node from others. The launcher knows best: two daemons of a test share one host name."""
    for variable in ("SLURM_NODEID", "GROUP_RANK"):
        if variable in os.environ:
            return f"{variable}={os.environ[variable]}"
    return socket.gethostname()


def find_node(messages: Messages) -> Node:
    """Ask all ranks where they are."""
    names = messages.gather(node_name())
    rank = messages.ranks.rank
    distinct = list(dict.fromkeys(names))
    own = names[rank]
    first = names.index(own)
    return Node(distinct.index(own), len(distinct), first, first == rank)
