"""What became of the samples that a data worker has read: the evidence when there is nothing to train on."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from isogclr.errors import DataError
from training.data.sample import SampleFiles

_SHOWN = 12  # extensions that an error lists


@dataclass
class Tally:
    """Counts of one pass of one worker over its data.

    Args:
        files: what a sample is.
    """

    files: SampleFiles
    drawn: int = 0
    usable: int = 0
    undecodable: int = 0
    unreadable_shards: int = 0
    first_decoding_error: str = ""
    first_shard_error: str = ""
    extensions: set[str] = field(default_factory=set)  # of samples that lack a part

    @property
    def incomplete(self) -> int:
        return self.drawn - self.usable - self.undecodable

    def note_incomplete(self, sample: Iterable[str]) -> None:
        """The files of a sample that lacks a part, by extension."""
        self.extensions.update(name for name in sample if not name.startswith("__"))

    def note_undecodable(self, name: str, error: Exception) -> None:
        logging.warning("%s can not be decoded (%r); it is left out", name, error)
        self.undecodable += 1
        self.first_decoding_error = self.first_decoding_error or f"{name}: {error!r}"

    def note_shard(self, url: str, error: Exception) -> None:
        logging.warning("shard %s: %r; its samples, or those that follow the damage, are left out", url, error)
        self.unreadable_shards += 1
        self.first_shard_error = self.first_shard_error or f"{url}: {error!r}"

    def complaint(self, batch_size: int) -> DataError:
        """Why this pass gave no batch."""
        if self.drawn == 0 and self.unreadable_shards:
            return DataError(
                f"a data worker has tried {self.unreadable_shards:,} times to read a shard and got no sample, "
                f"first from {self.first_shard_error}: check that this machine can read them"
            )
        if self.usable == 0 and self.undecodable:
            return DataError(
                f"all {self.undecodable:,} images that a data worker has read failed to decode, the first is "
                f"{self.first_decoding_error}: expected JPEG, PNG or WebP files; check the data"
            )
        if self.usable == 0 and self.drawn:
            found = ", ".join(sorted(self.extensions)[:_SHOWN]) or "nothing"
            return DataError(
                f"none of {self.drawn:,} samples {self.files.complaint.format(found=found)}: rename the files when "
                "the shards are written"
            )
        return DataError(
            f"the shards of a data worker hold {self.usable:,} usable samples "
            f"({self.incomplete:,} without {self.files.parts}, {self.undecodable:,} undecodable), fewer than one "
            f"batch of {batch_size:,}: use fewer workers, a smaller batch or shards of more equal size"
        )
