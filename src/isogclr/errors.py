"""Exceptions of isogclr. A message says what was found, what was expected and what to do."""

from __future__ import annotations

from collections.abc import Sequence


class IsogclrError(Exception):
    """Base of every exception that this package raises on purpose."""


class ConfigError(IsogclrError, ValueError):
    """A configuration that can not be used; lists every problem at once."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class InputError(IsogclrError, ValueError):
    """An argument of a call has the wrong shape, dtype or value; names the argument."""


class StoreError(IsogclrError):
    """Base of everything that can go wrong with the files of the state store."""


class DamagedFileError(StoreError):
    """A file of ours whose content does not match its checksums or its own description."""


class TruncatedFileError(DamagedFileError):
    """A file of ours that is shorter or longer than its header says."""


class ForeignFileError(StoreError):
    """A file that is not of the format that was asked for."""


class NewerVersionError(StoreError):
    """A file of our format, written by a newer release than this one."""


class IndexMismatchError(StoreError):
    """A store that belongs to another shard index: its rows are other samples."""


class SchemaMismatchError(StoreError):
    """A store whose columns are not those of the loss that wants to use it."""


class StoreLockedError(StoreError):
    """Another training run uses the store; `pid` and `host` say which."""

    def __init__(self, message: str, pid: int | None, host: str | None) -> None:
        self.pid = pid
        self.host = host
        super().__init__(message)


class StoreAbandonedError(StoreError):
    """A live file without its writer process: scratch that nobody may trust."""


class StoreStalledError(StoreError):
    """The writer has not applied anything for so long that waiting is pointless."""


class StoresDifferError(StoreError):
    """The stores of two nodes are not equal; says which node and which rows. Nothing was published."""


class StorageFullError(StoreError):
    """The disk is full. What was committed before is intact."""


class StorageError(StoreError):
    """The operating system could not read, write or rename. What was committed before is intact."""


class UnknownLossError(IsogclrError, KeyError):
    """A loss name that is not in the registry."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])


class ShardWarning(UserWarning):
    """Something in a shard that open_clip's reader would skip or merge silently; names the shard."""


class ShardIndexError(IsogclrError):
    """Base of everything that can be wrong with an index or with the shards it describes."""


class UnreadableShardError(ShardIndexError):
    """A shard that can not be opened or listed."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"shard {url} can not be read: {reason}")
        self.url = url
        self.reason = reason

    def __reduce__(self) -> tuple[type[UnreadableShardError], tuple[str, str]]:
        return type(self), (self.url, self.reason)  # worker processes send it to the builder


class MissingShardError(ShardIndexError):
    """A shard that was named, or that was there when the index was built, and is gone."""

    def __init__(self, url: str) -> None:
        super().__init__(
            f"shard {url} does not exist: bring it back, or leave it out of the data; "
            "the rows of a shard that is left out stay reserved in the index"
        )
        self.url = url

    def __reduce__(self) -> tuple[type[MissingShardError], tuple[str]]:
        return type(self), (self.url,)


class ChangedShardError(ShardIndexError):
    """A shard whose content is not what the index was built from."""


class UnknownShardError(ShardIndexError, KeyError):
    """A shard that the index does not hold: it appeared later, or belongs to another data set."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownKeyError(ShardIndexError, KeyError):
    """A key that the index does not hold for a shard that it knows."""

    def __str__(self) -> str:
        return str(self.args[0])


class UnknownRowError(ShardIndexError, IndexError):
    """A row number beyond the end of the index."""


class IndexNotFoundError(ShardIndexError, FileNotFoundError):
    """There is no index at the given place."""

    def __str__(self) -> str:
        return str(self.args[0])


class DamagedIndexError(ShardIndexError):
    """An index whose files are truncated, altered or incomplete."""


class ForeignIndexError(ShardIndexError):
    """Something that is no index, or an index of another data set."""


class NewerIndexError(ShardIndexError):
    """An index in a format that this version does not know."""


class IndexBusyError(ShardIndexError):
    """Another process is building the same index."""


class IndexWriteError(ShardIndexError):
    """The disk refused a new index; the old one is untouched."""


class EvaluationError(IsogclrError):
    """Base of everything that can go wrong while a model is measured."""


class MissingDataError(EvaluationError):
    """Files of a data set that are not there; lists them all."""

    def __init__(self, dataset: str, problems: Sequence[str]) -> None:
        self.dataset = dataset
        self.problems = tuple(problems)
        super().__init__(f"{dataset}: " + "; ".join(self.problems))


class DamagedDataError(EvaluationError):
    """A data set whose files are there, but can not be what they should be."""


class NonFiniteFeaturesError(EvaluationError):
    """A model that gives NaN or infinity: a similarity with those has no rank, so there is no score."""


class CheckpointError(EvaluationError):
    """A file that can not be used as a checkpoint of the model that is asked for."""


class CheckpointMismatchError(CheckpointError):
    """Weights that do not belong to the model; sums up what is missing, unexpected or of another shape."""


class DataError(IsogclrError):
    """Base of everything that can be wrong with training data, beyond its index. Takes one message, so that a data
    worker can send it."""


class NoUsableSampleError(DataError):
    """Shards or a table that hold nothing a model could be trained on."""


class TooFewShardsError(DataError):
    """Fewer shards than data workers: some worker would have nothing to read."""


class TooFewSamplesError(DataError):
    """Fewer samples than one batch, one step or the number that was asked for."""


class DataResumeError(DataError):
    """A place in the data that this set-up can not go back to."""


class DataWorkerError(DataError):
    """A data worker process that ended by itself or was killed."""


class TrainingError(IsogclrError):
    """A run that can not start, go on or resume."""


class TextTowerError(IsogclrError):
    """A Hugging Face text tower that can not be found or used."""


class DemoError(IsogclrError):
    """A training run of the demo that failed."""
