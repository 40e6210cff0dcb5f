"""Ids of shards, and finding a shard again after a move."""

from __future__ import annotations

import pytest

from isogclr.errors import UnknownShardError
from isogclr.shard_index.ids import Candidate, assign_ids, choose, components


def test_the_shortest_end_that_is_unique() -> None:
    assert assign_ids(["/data/0.tar", "/data/1.tar"], []) == ["0.tar", "1.tar"]
    assert assign_ids(["/data/a/0.tar", "/data/b/0.tar"], []) == ["a/0.tar", "b/0.tar"]
    assert assign_ids(["/x/p/0.tar", "/y/p/0.tar", "/y/p/1.tar"], []) == ["x/p/0.tar", "y/p/0.tar", "1.tar"]


def test_a_newcomer_gets_a_longer_id_and_the_old_one_is_frozen() -> None:
    assert assign_ids(["/data/b/0.tar"], [("0.tar", "/data/a/0.tar")]) == ["b/0.tar"]


def test_an_id_is_not_given_twice_even_if_its_holder_has_moved() -> None:
    """The holder of `b/0.tar` moved to c; a new shard at b must not get its id."""
    taken = [("b/0.tar", "/data/c/0.tar"), ("0.tar", "/data/a/0.tar")]
    assert assign_ids(["/data/b/0.tar"], taken) == ["data/b/0.tar"]


def test_a_relative_address_that_is_the_end_of_an_old_one_still_gets_an_id_of_its_own() -> None:
    assert assign_ids(["0.tar"], [("0.tar", "/a/0.tar")]) == ["./0.tar"]
    assert assign_ids(["a/0.tar", "/a/0.tar"], []) == ["a/0.tar", "/a/0.tar"]


@pytest.mark.parametrize("same", ["/data//a/0.tar", "/data/./a/0.tar"])
def test_spellings_of_one_address(same: str) -> None:
    assert components(same) == components("/data/a/0.tar")
    assert components("./a/0.tar") == components("a/0.tar") != components("/a/0.tar")


OLD = [Candidate(0, "0.tar", "/data/cc3m/0.tar"), Candidate(1, "cc12m/0.tar", "/data/cc12m/0.tar")]


@pytest.mark.parametrize(
    ("url", "shard"),
    [
        ("/data/cc3m/0.tar", 0),
        ("/data/cc12m/0.tar", 1),
        ("/elsewhere/cc3m/0.tar", 0),
        ("/elsewhere/cc12m/0.tar", 1),
        ("pipe:cat /mnt/cc12m/0.tar", 1),
    ],
)
def test_a_mix_that_moved_is_found_again(url: str, shard: int) -> None:
    assert choose(url, OLD) == shard


def test_a_renamed_directory_is_not_taken_for_another_source() -> None:
    with pytest.raises(UnknownShardError, match=r"could be /data/cc3m/0.tar or /data/cc12m/0.tar"):
        choose("/data/conceptual12m/0.tar", OLD)


def test_a_single_source_may_move_anywhere() -> None:
    assert choose("/anywhere/0.tar", OLD[:1]) == 0
    assert choose("/anywhere/0.tar", OLD[1:]) is None
    assert choose("/anywhere/0.tar", []) is None
