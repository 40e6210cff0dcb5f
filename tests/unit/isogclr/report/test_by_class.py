"""Temperatures class by class, against the same computed from all values at once."""

from __future__ import annotations

import numpy as np
import pytest

from isogclr.report.by_class import ByClass, ClassColumn
from isogclr.report.row_classes import Labels
from isogclr.report.scan import edges

COLUMN = "image_temperature"
BIN = 10 ** (1 / 200)  # of the scan: 200 per decade


def values_of(temperatures: np.ndarray) -> np.ndarray:
    values = np.zeros(len(temperatures), [(COLUMN, "f4")])
    values[COLUMN] = temperatures
    return values


def counted(classes: np.ndarray, temperatures: np.ndarray, bounds: tuple[float | None, float | None]) -> ByClass:
    """In several chunks, as the scan has them."""
    labels = Labels(classes.astype(np.int32), ("cat", "dog", "none", "rare"))
    found = ByClass.empty(labels, [COLUMN], edges(), bounds)
    for part in np.array_split(np.arange(len(classes)), 5):
        found.add(labels.of(part), values_of(temperatures[part]))
    return found


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    classes = random.choice([-1, 0, 1, 3], 4000, p=[0.1, 0.5, 0.35, 0.05])
    temperatures = np.clip(0.1 * (2 + classes) * random.lognormal(0, 0.3, 4000), 0.05, 1).astype(np.float32)
    return classes, temperatures


@pytest.mark.parametrize("bounds", [(0.05, 1.0), (None, None), (0.05, None)])
def test_each_class_has_its_own_statistics(
    data: tuple[np.ndarray, np.ndarray], bounds: tuple[float | None, float | None]
) -> None:
    classes, temperatures = data
    found = counted(classes, temperatures, bounds)
    column = found.columns[COLUMN]
    assert found.unlabelled == (classes == -1).sum()
    assert found.sizes.tolist() == [(classes == one).sum() for one in range(4)]
    assert found.present.tolist() == [0, 1, 3]
    for one in (0, 1, 3):
        own = temperatures[classes == one].astype(np.float64)
        assert column.means[one] == pytest.approx(own.mean())
        assert column.deviations[one] == pytest.approx(own.std())
        for share in (0.25, 0.5, 0.75):
            exact = np.quantile(own, share)
            assert exact / BIN**1.5 < column.quantiles(share)[one] < exact * BIN**1.5
    assert np.isnan(column.means[2])
    assert np.isnan(column.quantiles(0.5)[2])


def test_known_bounds_keep_the_table_small() -> None:
    assert ClassColumn(8142, edges(), (0.05, 1.0)).counts.nbytes < 10_000_000


def test_classes_taken_together(data: tuple[np.ndarray, np.ndarray]) -> None:
    classes, temperatures = data
    column = counted(classes, temperatures, (0.05, 1.0)).columns[COLUMN].together([0, 3])
    own = temperatures[np.isin(classes, (0, 3))].astype(np.float64)
    assert column.numbers.tolist() == [len(own)]
    assert column.means[0] == pytest.approx(own.mean())
    assert column.deviations[0] == pytest.approx(own.std())
    assert column.quantiles(0.5)[0] == pytest.approx(np.median(own), rel=0.02)


def test_the_hottest_and_the_coldest(data: tuple[np.ndarray, np.ndarray]) -> None:
    classes, temperatures = data
    known = classes >= 0
    groups = counted(classes, temperatures, (0.05, 1.0)).columns[COLUMN].extremes(0.05)
    assert groups is not None
    hot, cold = groups
    count = 0.05 * known.sum()
    assert count <= hot.sum() < 1.2 * count
    assert count <= cold.sum() < 1.2 * count
    order = np.argsort(temperatures[known])
    hottest = classes[known][order[-hot.sum() :]]
    assert hot.tolist() == [(hottest == one).sum() for one in range(4)]
    coldest = classes[known][order[: cold.sum()]]
    assert cold.tolist() == [(coldest == one).sum() for one in range(4)]


def test_all_at_a_bound_belong_together() -> None:
    """Which of many that are alike were the coldest would be chance."""
    temperatures = np.concatenate([np.full(300, 0.05), np.linspace(0.1, 0.9, 700)])
    groups = counted(np.zeros(1000, int), temperatures, (0.05, 1.0)).columns[COLUMN].extremes(0.05)
    assert groups is not None
    assert groups[1].sum() == 300


def test_temperatures_that_are_alike_have_no_extremes() -> None:
    column = counted(np.zeros(1000, int), np.full(1000, 0.3), (0.05, 1.0)).columns[COLUMN]
    assert column.extremes() is None
    assert ClassColumn(2, edges(), (None, None)).extremes() is None


def test_values_that_are_no_numbers_do_not_count() -> None:
    temperatures = np.array([0.2, np.nan, np.inf, 0.4], np.float32)
    found = counted(np.array([0, 0, 0, 1]), temperatures, (0.05, 1.0))
    assert found.sizes.tolist() == [3, 1, 0, 0]
    assert found.columns[COLUMN].numbers.tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize(
    ("sizes", "balanced"), [([5, 5, 0], True), ([6, 5, 5], True), ([9, 5, 5], False), ([0], True)]
)
def test_balanced(sizes: list[int], balanced: bool) -> None:
    assert ByClass(("",) * len(sizes), np.array(sizes), {}).is_balanced == balanced
