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


class StorageFullError(StoreError):
    """The disk is full. What was committed before is intact."""


class StorageError(StoreError):
    """The operating system could not read, write or rename. What was committed before is intact."""


class UnknownLossError(IsogclrError, KeyError):
    """A loss name that is not in the registry."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])
