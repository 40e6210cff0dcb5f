"""Exceptions of isogclr: as many classes as callers tell apart.

Each one says who does: code that handles it by name, or people who do something else about it. What is wrong in
particular is in the message: what was found, what was expected and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence


class IsogclrError(Exception):
    """Base of every exception raised on purpose: commands and ranks show its message without a traceback."""


class ConfigError(IsogclrError, ValueError):
    """A configuration that can not be used: the parser and the start of a run list its `problems`, all at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[tuple[str, ...]]]:
        return type(self), (self.problems,)  # `args` is the joined text


class InputError(IsogclrError, ValueError):
    """An argument of a call has the wrong shape, dtype or value: whoever reads a header takes it for damage."""


class StoreError(IsogclrError):
    """Whatever else is wrong with the state store, and the base of what follows: no caller tells more apart."""


class DamagedFileError(StoreError):
    """A file of ours that does not match its checksums or its own description: `latest` passes over it."""


class TruncatedFileError(DamagedFileError):
    """A file of ours that is shorter or longer than its header says: tells people of a copy that was cut short."""


class ForeignFileError(StoreError):
    """A file that is not of the format that was asked for: `latest` passes over it."""


class NewerVersionError(StoreError):
    """A file of our format from a newer release: `latest` must not pass over it, or a run would go back in time."""


class StoreLockedError(StoreError):
    """Another training run uses the store: people look for the process `pid` on `host`."""

    def __init__(self, message: str, pid: int | None, host: str | None) -> None:
        self.pid = pid
        self.host = host
        super().__init__(message)


class StoreAbandonedError(StoreError):
    """A live file without its writer process, scratch that nobody may trust: people start the run again."""


class StoreStalledError(StoreError):
    """The writer has not applied anything for so long that waiting is pointless: people look at the disk."""


class StorageFullError(StoreError):
    """The disk is full, what was committed before is intact: the store hands it on from its writer thread."""


class ShardWarning(UserWarning):
    """Something in a shard that open_clip's reader would skip or merge silently: a category for warning filters."""


class ShardIndexError(IsogclrError):
    """An index or the shards it describes can not be used: a run then builds the index, or brings it up to date."""


class UnknownShardError(ShardIndexError):
    """A shard that the index does not hold: a build takes it for a new one, the report leaves it out."""


class IndexNotFoundError(ShardIndexError):
    """There is no index at the given place: builds start one."""


class EvaluationError(IsogclrError):
    """Data, or a model's output, that can not be measured: a suite collects these and says all of them at once."""


class ModelError(IsogclrError):
    """A checkpoint or a text tower that can not be used: tells people to look at the model, not at the data."""


class DataError(IsogclrError):
    """Training data that can not be used, beyond its index: tells people to look at the data, not at the run."""


class TrainingError(IsogclrError):
    """A run that can not start, go on or resume: if the ranks can not meet, one rank per node says so."""


def unreadable_shard(url: str, reason: str) -> ShardIndexError:
    """A shard that can not be opened or listed."""
    return ShardIndexError(f"shard {url} can not be read: {reason}")


def missing_shard(url: str) -> ShardIndexError:
    """A shard that was named, or that was there when the index was built, and is gone."""
    return ShardIndexError(
        f"shard {url} does not exist: bring it back, or leave it out of the data; "
        "the rows of a shard that is left out stay reserved in the index"
    )
