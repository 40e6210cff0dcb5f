"""Stores of three nodes compared over real gloo processes: which node and which rows a message names."""

from __future__ import annotations

import numpy as np
import pytest

from isogclr.distributed import Messages, Ranks
from isogclr.errors import StoreError
from isogclr.state import MemoryStore, schema_for
from isogclr.state.layout import BLOCK_ROWS
from support.gloo import run_ranks
from training.ranks.node import Node
from training.store.node_comparison import check_stores_agree, forget_changes

ROWS = 100 * BLOCK_ROWS + 7
MANY_ROWS = 10_000 * BLOCK_ROWS + 7  # more blocks than ranges: a range has three
NODES_OF_RANKS = (0, 0, 1, 1, 2)


def compare(changes: dict[int, list[int]], store_rows: int = ROWS) -> tuple[str, int]:
    """On every rank: the same rows on all nodes, then more on some; the message, and the bytes that it took."""
    messages = Messages.of(Ranks())
    rank = messages.ranks.rank
    number = NODES_OF_RANKS[rank]
    first = NODES_OF_RANKS.index(number)
    node = Node(number, 3, first, first == rank)
    store = MemoryStore.create(schema_for(("image_temperature",)), store_rows, "f")
    rows = np.arange(0, store_rows, 5000)
    values = store.schema.zeros(len(rows))
    values["visits"] = 1
    store.write(rows, values, 1)
    check_stores_agree(store, messages, node)
    forget_changes(store, messages, node)
    if messages.ranks.rank == 0:
        store.forget_changes()  # as its commit does
    assert node.is_first_rank is False or len(store.changed_blocks()[0]) == 0
    for row in changes.get(number, []):
        one = store.schema.zeros(1)
        one["visits"] = 2
        store.write(np.array([row]), one, 2 + row)
    messages.ranks.bytes_received = 0
    try:
        check_stores_agree(store, messages, node)
    except StoreError as error:
        if "found different state stores" not in str(error):
            raise
        return str(error), messages.ranks.bytes_received
    return "", messages.ranks.bytes_received


def test_equal_stores_agree() -> None:
    everywhere = {node: [17, 90_000] for node in range(3)}
    assert [message for message, _ in run_ranks(5, compare, everywhere)] == [""] * 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({1: [3 * BLOCK_ROWS]}, f"node 1 ({{host}}) differs in rows {3 * BLOCK_ROWS} to {4 * BLOCK_ROWS - 1};"),
        (
            {2: [5 * BLOCK_ROWS, 6 * BLOCK_ROWS + 1, ROWS - 1]},
            f"node 2 ({{host}}) differs in rows {5 * BLOCK_ROWS} to {7 * BLOCK_ROWS - 1}, "
            f"{100 * BLOCK_ROWS} to {ROWS - 1};",
        ),
        ({0: [0]}, f"node 0 ({{host}}) differs in rows 0 to {BLOCK_ROWS - 1};"),  # the majority is right
        (
            {1: [0], 2: [2 * BLOCK_ROWS]},
            f"node 1 ({{host}}) differs in rows 0 to {BLOCK_ROWS - 1}; "
            f"node 2 ({{host}}) differs in rows {2 * BLOCK_ROWS} to {3 * BLOCK_ROWS - 1};",
        ),
    ],
)
def test_a_difference_is_named_on_all_ranks(changes: dict[int, list[int]], words: str) -> None:
    import socket  # noqa: PLC0415

    results = run_ranks(5, compare, changes)
    assert len({message for message, _ in results}) == 1
    assert words.format(host=socket.gethostname()) in results[0][0], results[0][0]


def test_messages_stay_small() -> None:
    """Every block or every second one differs on one node: still a few kilobytes, and few ranges by name."""
    results = run_ranks(5, compare, {1: list(range(0, ROWS, BLOCK_ROWS))})
    assert all(f"differs in rows 0 to {ROWS - 1};" in message for message, _ in results)
    assert max(size for _, size in results) < 200_000
    results = run_ranks(5, compare, {1: list(range(0, ROWS, 2 * BLOCK_ROWS))})
    assert all(message.count(" to ") == 16 for message, _ in results), results[0][0]
    assert all("and in 35 more ranges;" in message for message, _ in results), results[0][0]
    assert max(size for _, size in results) < 200_000


def test_a_large_store_is_compared_in_ranges_of_several_blocks() -> None:
    """The message names the whole range: rows of blocks 3,000 to 3,002 and of the last two."""
    results = run_ranks(5, compare, {2: [3001 * BLOCK_ROWS, MANY_ROWS - 1]}, MANY_ROWS)
    words = (
        f"differs in rows {3000 * BLOCK_ROWS} to {3003 * BLOCK_ROWS - 1}, {9999 * BLOCK_ROWS} to {MANY_ROWS - 1};"
    )
    assert all(words in message for message, _ in results), results[0][0]
    assert max(size for _, size in results) < 1_000_000
