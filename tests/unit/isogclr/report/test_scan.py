"""One pass over a store, against the same found with plain numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isogclr.report.scan import Scan, scan_store
from isogclr.state import StateStore
from isogclr.state.schema import Values
from support.store_cases import ISOGCLR

ROWS = 5000


@pytest.fixture(scope="module")
def values() -> Values:
    generator = np.random.default_rng(0)
    values = ISOGCLR.zeros(ROWS)
    for side in ("image", "text"):
        values[f"{side}_temperature"] = np.clip(generator.lognormal(-4, 1, ROWS), 0.005, 1.0).astype(np.float32)
    values["visits"] = generator.integers(0, 4, ROWS)
    values["last_epoch"] = values["visits"]
    values["text_temperature"][np.flatnonzero(values["visits"])[:3]] = np.nan
    values[values["visits"] == 0] = ISOGCLR.zeros(1)
    return values


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory, values: Values) -> Path:
    folder = tmp_path_factory.mktemp("scan")
    with StateStore.create(folder / "live", ISOGCLR, ROWS, "fingerprint") as store:
        store.write(np.arange(ROWS), values, step=7)
        store.commit(folder / "snapshot")
    return folder / "snapshot"


def scan(snapshot: Path, **options: object) -> Scan:
    chosen: dict[str, object] = {"extremes": 20, "sample": 300, **options}
    return scan_store(snapshot, (0.005, 1.0), **chosen)  # type: ignore[arg-type]


def test_counts_and_moments(snapshot: Path, values: Values) -> None:
    found, visited = scan(snapshot), values[values["visits"] > 0]
    column, expected = found.columns["image_temperature"], visited["image_temperature"].astype(np.float64)
    assert (found.rows, found.visited, found.step) == (ROWS, len(visited), 7)
    assert found.visits[:5].tolist() == np.bincount(visited["visits"], minlength=5).tolist()
    assert found.last_epochs == {epoch: int((visited["visits"] == epoch + 1).sum()) for epoch in range(3)}
    assert column.mean == pytest.approx(expected.mean())
    assert column.deviation == pytest.approx(expected.std(), rel=1e-6)
    assert column.quantile(0.5) == pytest.approx(np.median(expected), rel=0.02)
    assert (column.at_lower, column.at_upper) == ((expected <= 0.00500000001).sum(), (expected >= 0.999999).sum())
    assert column.at_lower > 10
    assert found.columns["text_temperature"].not_finite == 3


def test_extremes(snapshot: Path, values: Values) -> None:
    found = scan(snapshot)
    visited = np.flatnonzero(values["visits"])
    order = visited[np.lexsort((visited, -values["image_temperature"][visited]))]
    assert found.largest["image_temperature"].rows.tolist() == order[:20].tolist()
    rising = visited[np.lexsort((visited, values["image_temperature"][visited]))]
    lowest = found.smallest["image_temperature"]
    assert lowest.values is not None
    assert lowest.values["image_temperature"].tolist() == values["image_temperature"][rising[:20]].tolist()
    texts = found.largest["text_temperature"].values
    assert texts is not None
    assert np.isfinite(texts["text_temperature"]).all()


def test_the_sample_is_of_visited_rows_and_uniform(snapshot: Path, values: Values) -> None:
    draws = [scan(snapshot, seed=seed).sample_rows for seed in range(30)]
    for rows in draws:
        assert len(set(rows.tolist())) == 300
        assert (values["visits"][rows] > 0).all()
    halves = np.concatenate(draws) < ROWS // 2
    assert 0.45 < halves.mean() < 0.55
    assert len({tuple(rows.tolist()) for rows in draws}) == 30
    assert scan(snapshot).sample_rows.tolist() == draws[0].tolist()


def test_a_sample_within_intervals(snapshot: Path) -> None:
    intervals = (np.array([100, 3000]), np.array([200, 3050]))
    found = scan(snapshot, within=intervals, sample=20)
    rows = found.sample_rows
    assert (((rows >= 100) & (rows < 200)) | ((rows >= 3000) & (rows < 3050))).all()
    assert 80 < found.population <= 150


def test_all_rows_are_remembered_with_their_state(snapshot: Path, values: Values) -> None:
    chosen = int(np.flatnonzero(values["visits"])[-1])
    never = int(np.flatnonzero(values["visits"] == 0)[0])
    found = scan(snapshot, chosen=(chosen, never))
    assert chosen in found.states
    assert never not in found.states
    assert len(found.states) >= 300
    for row, state in found.states.items():
        assert state["image_temperature"] == values["image_temperature"][row]
