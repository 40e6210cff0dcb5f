"""Scans over all rows of a store, against plain loops; chunks are made small, so that there are many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isogclr.state import MemoryStore, Schema
from support.store_cases import GLOBAL_TEMPERATURE, ISOGCLR
from training.store import all_rows
from training.store.all_rows import chunks, seen_in_epoch, temperature_histograms

LOWEST, HIGHEST = 0.005, 0.1


@pytest.fixture(autouse=True, scope="module")
def _small_chunks() -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(all_rows, "CHUNK_ROWS", 7)
        yield


def store_of(last_epochs: list[int]) -> MemoryStore:
    """A store in which row r was last visited in epoch `last_epochs[r] - 1`; 0 is never."""
    store = MemoryStore.create(ISOGCLR, len(last_epochs), "f")
    values = store.schema.zeros(len(last_epochs))
    values["last_epoch"] = last_epochs
    values["visits"] = [epoch > 0 for epoch in last_epochs]
    store.write(np.arange(len(last_epochs)), values, 0)
    return store


def with_temperatures(schema: Schema, temperatures: list[float], visits: list[int]) -> MemoryStore:
    store = MemoryStore.create(schema, len(visits), "f")
    values = store.schema.zeros(len(visits))
    values["image_temperature"], values["text_temperature"] = temperatures, temperatures[::-1]
    values["visits"] = visits
    store.write(np.arange(len(visits)), values, 0)
    return store


@given(rows=st.integers(1, 60), stride=st.integers(1, 9))
def test_chunks_are_every_kth_row_in_order(rows: int, stride: int) -> None:
    store = store_of(list(range(rows)))
    found = [values["last_epoch"].tolist() for values in chunks(store, stride)]
    assert [epoch for chunk in found for epoch in chunk] == list(range(0, rows, stride))
    assert max(map(len, found)) <= 7


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(0, 3))
def test_seen_in_epoch(last_epochs: list[int], epoch: int) -> None:
    seen = seen_in_epoch(store_of(last_epochs), epoch)
    assert seen.dtype == np.bool_
    assert seen.tolist() == [last == epoch + 1 for last in last_epochs]


class TestHistograms:
    def test_visited_rows_are_counted_once(self) -> None:
        temperatures = np.geomspace(1.01 * LOWEST, 0.99 * HIGHEST, 30).tolist()
        visits = [number % 3 for number in range(30)]
        image, text = temperature_histograms(with_temperatures(ISOGCLR, temperatures, visits), LOWEST, HIGHEST)
        assert (image["column"], text["column"]) == ("image.temperature", "text.temperature")
        for record, column in ((image, temperatures), (text, temperatures[::-1])):
            edges = record["edges"]
            counted = [value for value, times in zip(column, visits, strict=True) if times]
            assert sum(record["counts"]) == len(counted) == 20
            assert record["stride"] == 1
            at_or_below = np.cumsum(record["counts"])
            for edge, below in zip(edges[1:-1], at_or_below, strict=False):
                assert below == sum(float(np.float32(value)) < edge for value in counted)

    def test_bounds_that_float32_rounds_are_counted(self) -> None:
        """float32(0.1) lies above 0.1, float32(0.005) below 0.005: both belong into an outer bin."""
        assert float(np.float32(HIGHEST)) > HIGHEST
        assert float(np.float32(LOWEST)) < LOWEST
        store = with_temperatures(ISOGCLR, [LOWEST, HIGHEST, HIGHEST], [1, 1, 1])
        image = temperature_histograms(store, LOWEST, HIGHEST)[0]
        assert (image["counts"][0], image["counts"][-1], sum(image["counts"])) == (1, 2, 3)

    def test_edges_are_equal_ratios(self) -> None:
        edges = temperature_histograms(with_temperatures(ISOGCLR, [0.01], [1]), LOWEST, HIGHEST)[0]["edges"]
        assert len(edges) == all_rows.BINS + 1
        assert (edges[0], edges[-1]) == (LOWEST, HIGHEST)
        np.testing.assert_allclose(np.diff(np.log(edges)), np.log(HIGHEST / LOWEST) / all_rows.BINS)

    def test_every_kth_row_of_a_large_store(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(all_rows, "MAX_ROWS", 12)
        store = with_temperatures(ISOGCLR, [0.01 if row % 3 == 0 else 0.05 for row in range(30)], [1] * 30)
        image = temperature_histograms(store, LOWEST, HIGHEST)[0]
        assert image["stride"] == 3
        assert sorted(image["counts"])[-2:] == [0, 10]

    def test_nothing_where_rows_have_no_temperature(self) -> None:
        store = MemoryStore.create(GLOBAL_TEMPERATURE, 5, "f")
        assert temperature_histograms(store, LOWEST, HIGHEST) == []
