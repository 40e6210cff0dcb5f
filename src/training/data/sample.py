"""What a sample is: as it is read, and which of its files count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol


class RawSample(NamedTuple):
    """A sample as it is read, not decoded."""

    row: int
    name: tuple[str, str]  # shard and key, for messages
    content: Any  # what the source's `decode` takes; None if a part of the sample is missing


class SampleFiles(Protocol):
    """What a sample of a shard is: which of its files count, and how they are decoded.

    Attributes:
        parts: what a sample may lack, in words.
        example: two members of a shard, in words.
        complaint: what none of many samples has, with `{found}` for the extensions that they have.
    """

    parts: str
    example: str
    complaint: str

    def choose(self, sample: Mapping[str, Any]) -> Any:
        """What is kept of the files of a sample, by extension; None if a part is missing."""
        ...

    def decode(self, content: Any) -> Any:
        """From what was kept to what `Preparation.inputs` takes; raises whatever the decoder raises."""
        ...
