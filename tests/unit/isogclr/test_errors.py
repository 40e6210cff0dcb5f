"""Errors travel between processes: data workers and those that list shards send theirs."""

from __future__ import annotations

import pickle

import pytest

from isogclr.errors import ConfigError, DataError, IsogclrError, missing_shard, unreadable_shard


@pytest.mark.parametrize(
    "error",
    [
        ConfigError(["--lr is 0", "--epochs is -1"]),
        DataError("too few"),
        missing_shard("a.tar"),
        unreadable_shard("a.tar", "it is a folder"),
    ],
    ids=["problems", "message", "missing", "unreadable"],
)
def test_an_error_arrives_as_it_was_sent(error: IsogclrError) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert vars(arrived) == vars(error)
