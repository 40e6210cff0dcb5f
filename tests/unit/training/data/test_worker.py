"""The stream of one data worker over a small data set in memory: how many batches, of which samples."""

from __future__ import annotations

import logging
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from isogclr.errors import DataError
from support.memory_source import MemorySource
from training.data.image_text import PairInputs
from training.data.position import Batch, Part
from training.data.worker import Preparation, Task, WorkerStream
from training.randomness import generators_preserved

ALONE = Part(rank=0, world_size=1, worker=0, workers=1)


@pytest.fixture(autouse=True, scope="module")
def _generators_of_other_tests() -> Any:
    with generators_preserved():
        yield


def first_input(row: int) -> Tensor:
    """The row, and a number from the generator that augmentations use."""
    return torch.cat([torch.tensor([float(row)]), torch.rand(1)])


def second_input(row: int) -> Tensor:
    return torch.tensor([[row]])  # as a tokenizer: one line per text


def stream(source: MemorySource, batches: int, *, seed: int = 0, **task: Any) -> WorkerStream:
    """The only place here that knows how a stream is made."""
    prepared = Preparation(source, PairInputs(first_input, second_input), seed)
    whole = {"epoch": 0, "part": ALONE, "batch_size": 4, **task}
    return WorkerStream(Task(batches=batches, **whole), prepared)


def inputs(batch: Batch) -> tuple[Tensor, Tensor]:
    """The only place here that knows how a batch holds what the model takes."""
    first, second = batch.inputs
    return first, second


def read(source: MemorySource, batches: int, **task: Any) -> list[Batch]:
    """All batches; of a stream that does not end, some more than were asked for."""
    return list(islice(stream(source, batches, **task), batches + 3))


def rows(batches: list[Batch]) -> list[list[int]]:
    return [batch.rows.tolist() for batch in batches]


def draws(batches: list[Batch]) -> dict[int, float]:
    """What augmentation made of each row."""
    return {int(row): draw for batch in batches for row, draw in inputs(batch)[0].tolist()}


class TestBatches:
    def test_inputs_and_rows_belong_together(self) -> None:
        (batch,) = read(MemorySource(5), 1, part=Part(1, 2, 1, 3), batch_size=1)
        assert batch.rows.dtype == torch.int64
        assert batch.rows.tolist() == inputs(batch)[0][:, 0].tolist() == inputs(batch)[1][:, 0].tolist() == [4]

    def test_they_say_who_gave_them_and_how_far_it_had_come(self) -> None:
        source = MemorySource(12, incomplete={1, 2})
        found = read(source, 2, part=Part(0, 1, 0, 1))
        assert [(batch.worker, batch.drawn) for batch in found] == [(0, 6), (0, 10)]
        assert {batch.worker for batch in read(MemorySource(12), 1, part=Part(0, 1, 1, 2))} == {1}

    @settings(max_examples=60)
    @given(samples=st.integers(1, 30), batch_size=st.integers(1, 6), wanted=st.integers(0, 9), drops=st.booleans())
    def test_exactly_as_many_as_were_asked_for(
        self, samples: int, batch_size: int, wanted: int, drops: bool
    ) -> None:
        """Passes follow one another: with the rest of the one before in front, or without it."""
        source = MemorySource(samples, drops_last=drops)
        if drops and samples < batch_size and wanted:
            with pytest.raises(DataError, match=f"hold {samples} usable samples"):
                read(source, wanted, batch_size=batch_size)
            return
        kept = samples // batch_size * batch_size if drops else samples
        expected = [place % kept for place in range(wanted * batch_size)]
        found = read(source, wanted, batch_size=batch_size)
        assert rows(found) == [expected[one : one + batch_size] for one in range(0, len(expected), batch_size)]
        assert source.closed == len(source.passes)

    def test_passes_are_numbered(self) -> None:
        """Each shuffles in its own way."""
        source = MemorySource(4)
        read(source, 3, epoch=5)
        assert [(one.epoch, one.number) for one in source.passes] == [(5, 0), (5, 1), (5, 2)]

    def test_a_reader_that_leaves_early_closes_the_pass(self) -> None:
        source = MemorySource(40)
        batches = iter(stream(source, 9))
        next(batches)
        assert source.closed == 0
        batches.close()  # type: ignore[attr-defined]
        assert source.closed == 1


class TestSkip:
    @settings(max_examples=40)
    @given(done=st.integers(0, 6), drops=st.booleans(), samples=st.integers(4, 14))
    def test_the_rest_is_the_one_that_was_interrupted(self, done: int, drops: bool, samples: int) -> None:
        """Bit for bit, in whatever pass it was interrupted. Row 2 is broken: it is drawn, and is in no batch."""
        whole = read(MemorySource(samples + 1, drops_last=drops, broken={2}), 7)
        source = MemorySource(samples + 1, drops_last=drops, broken={2})
        drawn = whole[done - 1].drawn if done else 0
        rest = read(source, 7 - done, skip=drawn)
        assert rows(rest) == rows(whole[done:])
        assert [batch.drawn for batch in rest] == [batch.drawn for batch in whole[done:]]
        assert draws(rest).items() <= draws(whole).items()

    def test_what_was_given_before_is_not_decoded(self) -> None:
        source = MemorySource(12)
        assert rows(read(source, 1, skip=8)) == [[8, 9, 10, 11]]
        assert source.decoded == [8, 9, 10, 11]

    def test_nothing_of_a_pass_that_was_skipped_as_a_whole_is_missed(self) -> None:
        source = MemorySource(4)
        assert rows(read(source, 1, skip=12)) == [[0, 1, 2, 3]]
        assert len(source.passes) == 4


class TestUnusable:
    def test_samples_without_image_or_caption_are_left_out_unseen(self) -> None:
        source = MemorySource(10, incomplete={0, 3})
        assert rows(read(source, 2)) == [[1, 2, 4, 5], [6, 7, 8, 9]]
        assert not {0, 3} & set(source.decoded)

    def test_broken_ones_are_left_out_and_named(self, caplog: pytest.LogCaptureFixture) -> None:
        assert rows(read(MemorySource(10, broken={0, 3}), 2)) == [[1, 2, 4, 5], [6, 7, 8, 9]]
        assert [record.getMessage().split(" can not")[0] for record in caplog.records] == ["memory 0", "memory 3"]

    @pytest.mark.parametrize("drops", [True, False])
    def test_nothing_but_broken_ones(self, drops: bool) -> None:
        source = MemorySource(6, drops_last=drops, broken=range(6))
        with pytest.raises(DataError, match="all 6 images that a data worker has read failed to decode"):
            read(source, 1)
        assert len(source.passes) == 1

    def test_fewer_than_a_batch_are_enough_where_they_are_carried(self) -> None:
        assert rows(read(MemorySource(3, drops_last=False), 2)) == [[0, 1, 2, 0], [1, 2, 0, 1]]


class TestEndless:
    def test_one_pass_is_enough(self) -> None:
        source = MemorySource(3, endless=True)
        assert rows(read(source, 2)) == [[0, 1, 2, 0], [1, 2, 0, 1]]
        assert (len(source.passes), source.closed) == (1, 1)

    def test_patience_ends_after_ten_times_the_data(self) -> None:
        source = MemorySource(5, endless=True, incomplete=range(5))
        with pytest.raises(DataError, match="none of 50 samples has a caption and an image"):
            read(source, 1)

    def test_of_a_large_data_set_it_ends_sooner(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("training.data.worker._PATIENCE", 30)
        source = MemorySource(1_000, endless=True, broken=range(1_000))
        with pytest.raises(DataError, match="all 30 images"):
            read(source, 1)

    def test_one_usable_sample_is_reason_to_go_on(self) -> None:
        """However few there are: a batch takes more draws here than patience would last."""
        source = MemorySource(5, endless=True, broken=range(1, 5))
        assert rows(read(source, 1, batch_size=12)) == [[0] * 12]

    def test_a_row_that_is_drawn_again_looks_different(self) -> None:
        found = read(MemorySource(1, endless=True), 2)
        looks = [draw for batch in found for _, draw in inputs(batch)[0].tolist()]
        assert len(set(looks)) == 8


class TestAugmentation:
    def test_it_depends_on_seed_epoch_and_row_alone(self) -> None:
        alone = draws(read(MemorySource(16), 4))
        assert len(set(alone.values())) == 16
        elsewhere = draws(read(MemorySource(16), 4, part=Part(1, 2, 0, 2), batch_size=1))
        assert len(elsewhere) == 4
        assert elsewhere.items() <= alone.items()
        for other in (read(MemorySource(16), 4, epoch=1), read(MemorySource(16), 4, seed=1)):
            assert not set(draws(other).values()) & set(alone.values())

    def test_a_second_pass_repeats_it(self) -> None:
        first, second = read(MemorySource(4), 2)
        assert torch.equal(inputs(first)[0], inputs(second)[0])


def rest(source: MemorySource, seen: set[int]) -> Any:
    return source.rest(0, np.array([row in seen for row in range(source.samples)]), source.samples)


class TestUnseen:
    def test_what_is_left_comes_first_and_the_batch_is_filled(self) -> None:
        """Even of shards, whose last samples are dropped else: nobody else would visit them."""
        source = MemorySource(9, drops_last=True)
        found = read(source, 2, rest=rest(source, {0, 2, 4, 6}))
        assert rows(found) == [[1, 3, 5, 7], [8, 1, 3, 5]]

    def test_workers_share_it(self) -> None:
        source = MemorySource(9)
        left = rest(source, {0})
        parts = [Part(0, 1, worker, 2) for worker in range(2)]
        assert [rows(read(source, 1, part=part, rest=left)) for part in parts] == [[[1, 2, 3, 4]], [[5, 6, 7, 8]]]

    def test_who_has_nothing_usable_repeats_others(self, caplog: pytest.LogCaptureFixture) -> None:
        """All ranks wait for a batch: it comes from all of the data, whichever worker asks."""
        source = MemorySource(6, broken={4, 5})
        with caplog.at_level(logging.WARNING):
            found = read(source, 1, part=Part(0, 1, 1, 2), rest=rest(source, {0, 1, 2}))
        assert rows(found) == [[0, 1, 2, 3]]
        assert "none of the 2 samples that were left for a data worker is usable; it repeats others" in caplog.text

    def test_but_not_where_nothing_is_usable_at_all(self) -> None:
        source = MemorySource(6, broken=range(6))
        with pytest.raises(DataError, match="all 6 images"):
            read(source, 1, rest=rest(source, {0, 1}))
