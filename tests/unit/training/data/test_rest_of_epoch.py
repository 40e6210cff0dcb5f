"""The rest of an epoch in equal parts, against plain sets and loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.rest_of_epoch import Rest, SeenRows, how_many

FEW = st.integers(1, 40)


def rest_of(total: int) -> Rest:
    return Rest(0, total, SeenRows(np.zeros(total, bool)), np.array([total]))


@st.composite
def masks_and_ranges(draw: st.DrawFn) -> tuple[list[bool], range]:
    seen = draw(st.lists(st.booleans(), min_size=1, max_size=70))
    start = draw(st.integers(0, len(seen)))
    return seen, range(start, draw(st.integers(start, len(seen))))


class TestSeenRows:
    @given(masks_and_ranges())
    def test_what_was_not_visited_of_a_range(self, case: tuple[list[bool], range]) -> None:
        seen, rows = case
        visited = {row for row, is_seen in enumerate(seen) if is_seen}
        assert SeenRows(np.array(seen)).unseen(rows).tolist() == [row for row in rows if row not in visited]

    @given(st.data())
    def test_rows_in_any_order_and_repeated(self, data: st.DataObject) -> None:
        seen = data.draw(st.lists(st.booleans(), min_size=1, max_size=70))
        rows = data.draw(st.lists(st.integers(0, len(seen) - 1)))
        visited = {row for row, is_seen in enumerate(seen) if is_seen}
        found = SeenRows(np.array(seen)).contains(np.array(rows, dtype=np.int64))
        assert found.dtype == np.bool_
        assert found.tolist() == [row in visited for row in rows]

    def test_a_row_takes_one_bit(self) -> None:
        """Every data worker holds it: a billion rows are 125 MB."""
        assert SeenRows(np.ones(8_000, bool))._bits.nbytes == 1_000


class TestShare:
    @given(parts=FEW, more=st.integers(0, 200))
    def test_every_place_is_one_workers(self, parts: int, more: int) -> None:
        total = parts + more
        shares = [rest_of(total).share(number, parts) for number in range(parts)]
        assert [place for share in shares for place in share] == list(range(total))

    @given(parts=FEW, total=st.integers(1, 200))
    def test_shares_are_equal_but_for_one(self, parts: int, total: int) -> None:
        sizes = {len(rest_of(total).share(number, parts)) for number in range(parts)}
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) == -(-total // parts)

    @given(total=FEW, more=FEW)
    def test_who_would_have_none_repeats_one_place(self, total: int, more: int) -> None:
        parts = total + more
        shares = [rest_of(total).share(number, parts) for number in range(parts)]
        assert {len(share) for share in shares} == {1}
        times = Counter(place for share in shares for place in share)
        assert set(times) == set(range(total))
        assert max(times.values()) - min(times.values()) <= 1  # no sample is repeated much more than another


class TestBatches:
    @given(total=st.integers(1, 300), batch_size=FEW, world_size=st.integers(1, 5), workers=FEW, accumulation=FEW)
    def test_enough_for_the_largest_share_and_no_step_more(
        self, total: int, batch_size: int, world_size: int, workers: int, accumulation: int
    ) -> None:
        rest = rest_of(total)
        parts = world_size * workers
        largest = max(len(rest.share(number, parts)) for number in range(parts))
        found = rest.number_of_batches(batch_size, world_size, workers, accumulation)
        assert found % accumulation == 0
        assert found // workers * batch_size >= largest  # of the worker that gives the fewest
        fewer = found - accumulation
        assert -(-largest // batch_size) * workers > fewer

    def test_by_hand(self) -> None:
        """100 rows for 2 ranks of 3 workers: 17 rows each, 5 batches of 4, 15 of a rank, 16 in steps of 2."""
        assert rest_of(100).number_of_batches(batch_size=4, world_size=2, workers=3, accumulation=2) == 16


@pytest.mark.parametrize(
    ("unseen", "seen", "num_samples", "expected"),
    [(30, 70, 100, 30), (30, 70, 120, 30), (30, 70, 80, 10), (30, 70, 70, 0), (30, 70, 60, 0), (95, 5, 50, 45)],
)
def test_a_short_epoch_ends_after_its_own_number(unseen: int, seen: int, num_samples: int, expected: int) -> None:
    assert how_many(unseen, seen, num_samples, samples=100) == expected
