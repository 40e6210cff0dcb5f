"""Tar shards, in open_clip's order, with a row for each sample."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from webdataset.filters import shuffle

from isogclr.errors import DataError
from isogclr.shard_index import ShardIndex
from isogclr.shard_index.addresses import local_path
from training.data.rest_of_epoch import Rest, SeenRows, how_many
from training.data.sample import RawSample, SampleFiles
from training.data.source import Pass, Samples
from training.data.tally import Tally
from training.open_clip_bridge import tarfile_to_samples
from training.randomness import derive_seed

SHARD_BUFFER, SHARD_INITIAL = 2000, 500  # open_clip's shuffles
SAMPLE_BUFFER, SAMPLE_INITIAL = 5000, 1000
_OTHER_FORMATS = {b"\x1f\x8b": "gzip", b"PK": "zip", b"PAR1": "Parquet", b"7z": "7-Zip", b"{": "JSON", b"<": "HTML"}
_EMPTY_ROUNDS = 10  # that many times all shards without a sample, and there are none


class ShardSource:
    """Shards, each read once per pass: shuffled, split by rank and worker, samples shuffled in a buffer.

    Args:
        urls: of the shards.
        index: knows their rows.
        files: what a sample is.
        seed: of all shuffles.
    """

    drops_last = True
    endless = False

    def __init__(self, urls: Sequence[str], index: ShardIndex, files: SampleFiles, seed: int) -> None:
        if not urls:
            raise DataError("the pattern of the training data names no shard: expected at least one")
        self.urls = list(urls)
        self.index = index
        self.files = files
        self.decode = files.decode
        self.seed = seed
        self._numbers = [index.find(url) for url in self.urls]
        self.rows = index.number_of_rows
        self.samples = sum(map(self.samples_in, self._numbers))
        self.digest = index.content_digest(self._numbers)
        if not self.samples:
            raise DataError(
                f"the {len(self.urls):,} shards of the training data hold no sample: {self.urls[0]} is the "
                f"first{_other_format(self.urls[0])}; expected tar files with members like {files.example}"
            )

    def samples_in(self, shard: int) -> int:
        """How many samples of the shard with this number are drawn."""
        return self.index.samples(shard)

    def batches_per_epoch(self, num_samples: int, batch_size: int, world_size: int, workers: int) -> int:
        """Rounded up twice, so that all workers of all ranks give the same number."""
        batches = -(-num_samples // (batch_size * world_size))
        return -(-batches // workers) * workers

    def epoch_order(self, epoch: int) -> list[int]:
        """Positions in `urls`, the same on all ranks."""
        rng = random.Random(self.seed + epoch)
        return list(shuffle(bufsize=SHARD_BUFFER, initial=SHARD_INITIAL, rng=rng)(iter(range(len(self.urls)))))

    def check_epoch(self, epoch: int, batch_size: int, world_size: int, workers: int) -> None:
        order = self.epoch_order(epoch)
        parts = world_size * workers
        # [rank::W][worker::workers] is [rank + W·worker::W·workers]
        least = min(sum(self.samples_in(self._numbers[p]) for p in order[part::parts]) for part in range(parts))
        if least < batch_size:
            raise DataError(
                f"in epoch {epoch} one of the {parts:,} data workers would have shards with {least:,} samples, "
                f"fewer than one batch of {batch_size:,}: use fewer workers, a smaller batch or more equal shards"
            )

    def draw(self, which: Pass, tally: Tally) -> Samples:
        return self._shuffled(self._read(self._pass_urls(which), tally), which, "samples")

    def _pass_urls(self, which: Pass) -> Iterator[str]:
        _, _, (rank, world_size, worker, workers) = which
        return (self.urls[p] for p in self.epoch_order(which.epoch)[rank::world_size][worker::workers])

    def _shuffled(self, samples: Samples, which: Pass, what: str) -> Samples:
        epoch, number, part = which
        rng = random.Random(derive_seed(what, self.seed, epoch, number, part.rank, part.worker))
        shuffled: Iterator[RawSample] = shuffle(bufsize=SAMPLE_BUFFER, initial=SAMPLE_INITIAL, rng=rng)(samples)
        with contextlib.closing(samples):
            yield from shuffled

    def _read(self, urls: Iterator[str], tally: Tally) -> Samples:
        for url in urls:
            yield from self.read_shard(url, tally)

    def read_shard(self, url: str, tally: Tally) -> Samples:
        """The samples of one shard in the order of the tar, each with its row. Damage ends the shard."""
        rows = self.index.shard(url)
        source: dict[str, Any] = {"url": url}

        def skip(error: Exception) -> bool:
            tally.note_shard(url, error)
            return True

        try:
            for sample in tarfile_to_samples([source], handler=skip):
                key = sample["__key__"]
                content = self.files.choose(sample)
                if content is None:
                    tally.note_incomplete(sample)
                yield RawSample(rows.row(key), (url, key), content)
        finally:
            if "stream" in source:
                with contextlib.suppress(OSError):  # of a command that failed; the reader has said so
                    source["stream"].close()

    def rest(self, epoch: int, seen: npt.NDArray[np.bool_], num_samples: int) -> Rest:
        shards = self._distinct_order(epoch)
        ranges = [self.index.row_ranges(self._numbers[position]) for position in shards]
        counts = np.array(
            [sum(int(np.count_nonzero(~seen[rows.start : rows.stop])) for rows in one) for one in ranges]
        )
        visited = sum(len(rows) for one in ranges for rows in one) - int(counts.sum())
        total = how_many(int(counts.sum()), visited, num_samples, self.samples)
        return Rest(epoch, total, SeenRows(seen), counts)

    def _distinct_order(self, epoch: int) -> list[int]:
        """A shard that is named twice is visited once: a row that was seen is seen."""
        first = {self._numbers[position]: position for position in reversed(self.epoch_order(epoch))}
        return list(reversed(first.values()))

    def draw_rest(self, which: Pass, rest: Rest, tally: Tally) -> Samples:
        return self._shuffled(self._read_rest(which, rest, tally), which, "unseen")

    def _read_rest(self, which: Pass, rest: Rest, tally: Tally) -> Samples:
        places = rest.share(which.part.number, which.part.parts)
        ends = np.cumsum(rest.counts)
        order = self._distinct_order(which.epoch)
        first = int(np.searchsorted(ends, places.start, side="right"))
        for shard in range(first, len(order)):
            begin = int(ends[shard] - rest.counts[shard])
            if begin >= places.stop:
                return
            ranges = self.index.row_ranges(self._numbers[order[shard]])
            rows = np.concatenate([rest.seen.unseen(one) for one in ranges] or [np.arange(0)])
            wanted = set(rows[max(0, places.start - begin) : places.stop - begin].tolist())
            yield from self._read_rows(self.urls[order[shard]], wanted, tally)

    def _read_rows(self, url: str, wanted: set[int], tally: Tally) -> Samples:
        if not wanted:
            return
        with contextlib.closing(self.read_shard(url, tally)) as samples:
            for sample in samples:
                if sample.row in wanted:
                    wanted.remove(sample.row)  # a key that is twice in a shard is one row
                    yield sample
                    if not wanted:
                        return


class ResampledShardSource(ShardSource):
    """Shards drawn with replacement, for ever; by weight if there are upsampling factors."""

    endless = True

    def __init__(
        self,
        urls: Sequence[str],
        weights: Sequence[float] | None,
        index: ShardIndex,
        files: SampleFiles,
        seed: int,
    ) -> None:
        super().__init__(urls, index, files, seed)
        self._cumulated = None if weights is None else list(accumulate(weights))
        self.digest = f"{self.digest}-{derive_seed(*map(repr, weights or ())):x}"

    def check_epoch(self, epoch: int, batch_size: int, world_size: int, workers: int) -> None:
        """Whatever is drawn, a batch gets full."""

    def _pass_urls(self, which: Pass) -> Iterator[str]:
        part = which.part
        rng = random.Random(derive_seed("shards", self.seed, which.epoch, part.rank, part.worker))
        while True:
            if self._cumulated is None:
                yield rng.choice(self.urls)
            else:
                yield rng.choices(self.urls, cum_weights=self._cumulated)[0]

    def _read(self, urls: Iterator[str], tally: Tally) -> Samples:
        empty = 0
        for url in urls:
            empty += 1
            for sample in self.read_shard(url, tally):
                empty = 0
                yield sample
            if empty > _EMPTY_ROUNDS * len(self.urls):
                return  # the buffer is emptied, and the pass complains


def _other_format(url: str) -> str:
    """In words, if a file without samples begins as one of another kind does."""
    path = local_path(url)
    if path is None:
        return ""
    with open(path, "rb") as stream:  # noqa: PTH123 (a path may be any text)
        start = stream.read(max(map(len, _OTHER_FORMATS)))
    found = next((name for mark, name in _OTHER_FORMATS.items() if start.startswith(mark)), None)
    return "" if found is None else f", and it begins as a {found} file does"
