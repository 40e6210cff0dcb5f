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


class UnknownLossError(IsogclrError, KeyError):
    """A loss name that is not in the registry."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return str(self.args[0])
