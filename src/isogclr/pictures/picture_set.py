"""A set of pictures, known by row, with labels where there are any."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image

from isogclr.errors import DataError
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.ids import components

Rows = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64]
NO_LABEL = -1


class Pictures(ABC):
    """Pictures from one of the three layouts. Lives in every data worker, so it holds no pixels.

    Args:
        shards: addresses, in the order of the data.
        index: knows their rows; without one, rows are places in the order of the data.

    Attributes:
        rows: rows of the index, or of the set if there is none; some may belong to other data.
        digest: of what there is, in its order.
    """

    rows: int
    digest: str

    def __init__(self, shards: Sequence[str], index: ShardIndex | None) -> None:
        self.shards = list(shards)
        self.index = index

    @abstractmethod
    def positions(self) -> Rows:
        """The rows of all pictures, in the order of the data."""

    @property
    @abstractmethod
    def labels(self) -> Labels | None:
        """By row; −1 where there is no label, or no picture of this set. None if no picture has one."""

    @property
    @abstractmethod
    def classes(self) -> tuple[str, ...] | None:
        """Names by label; None if there are no labels."""

    @abstractmethod
    def read(self, row: int) -> Image.Image:
        """One picture, RGB. Raises whatever the decoder raises if it is damaged, `DataError` if there is none."""

    @abstractmethod
    def name(self, row: int) -> tuple[str, str]:
        """Shard and key, as the index has them."""

    def __len__(self) -> int:
        return len(self.positions())

    def scan(self) -> Iterator[tuple[int, Image.Image]]:
        """All pictures with their rows, in the order of the data; damage is raised as by `read`."""
        for row in self.positions().tolist():
            yield row, self.read(row)

    @cached_property
    def size(self) -> tuple[int, int]:
        """Width and height of the first picture; others may have another one."""
        return self.read(int(self.positions()[0])).size

    def _no_picture(self, row: int) -> DataError:
        return DataError(
            f"row {row:,} is no picture of {self.shards[0]} and its {len(self.shards) - 1:,} companions"
        )


class PlacedPictures(Pictures):
    """Pictures of which it is known from the start which there are: in folders, or in CIFAR's files.

    Args:
        order: rows in the order of the data.
        labels: in the order of the data; None if there are none.
    """

    def __init__(
        self,
        shards: Sequence[str],
        index: ShardIndex | None,
        order: Rows,
        digest: str,
        labels: Labels | None,
        classes: tuple[str, ...] | None,
    ) -> None:
        super().__init__(shards, index)
        if not len(order):
            raise DataError(f"{shards[0]} and its companions hold no picture: expected at least one")
        self.rows = len(order) if index is None else index.number_of_rows
        self.digest = digest
        self._classes = classes
        self._order = order
        self._places = np.full(self.rows, -1, dtype=np.int64)
        self._places[order] = np.arange(len(order))
        self._labels: Labels | None = None
        if labels is not None:
            self._labels = np.full(self.rows, NO_LABEL, dtype=np.int64)
            self._labels[order] = labels

    def positions(self) -> Rows:
        return self._order

    @property
    def labels(self) -> Labels | None:
        return self._labels

    @property
    def classes(self) -> tuple[str, ...] | None:
        return self._classes

    def place(self, row: int) -> int:
        """Where in the order of the data a row is."""
        found = int(self._places[row]) if 0 <= row < self.rows else -1
        if found < 0:
            raise self._no_picture(row)
        return found


def rows_of(url: str, keys: Sequence[str], index: ShardIndex) -> Rows:
    """The rows of the pictures that were found in a shard; all of them, and no others, must be in the index."""
    known = index.samples(index.find(url))
    if len(keys) != known:
        raise DataError(
            f"{url} has {len(keys):,} pictures, and the index has {known:,}: some were added or removed since; "
            "bring the index up to date with `isogclr index build`, old rows stay where they are"
        )
    return index.shard(url).rows(keys)


def digest_of(shards: Sequence[str], contents: Sequence[bytes]) -> str:
    """Of names and contents of shards, where there is no index to ask."""
    digest = hashlib.blake2b(digest_size=16)
    for url, content in zip(shards, contents, strict=True):
        name = components(url)[0].encode("utf-8", "surrogateescape")
        digest.update(len(name).to_bytes(8, "little") + name + content)
    return digest.hexdigest()


def shard_names(shards: Sequence[str], index: ShardIndex | None) -> list[str]:
    """Ids, as the index has them; without one, the end of the address."""
    if index is None:
        return [components(url)[0] for url in shards]
    return [index.files.tables.shard_id(index.find(url)) for url in shards]
