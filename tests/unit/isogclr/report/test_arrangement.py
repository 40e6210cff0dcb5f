"""Maps by class: which pictures, which neighbours, which colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from isogclr.report.arrangement import choose_rows, embed_rows, extremes_of, nearest_of_same_class
from isogclr.report.canvas import LIGHT, OTHER_CLASSES
from isogclr.report.class_colours import palette, plain_name
from isogclr.report.row_classes import Labels
from isogclr.report.samples import Source


def test_nearest_neighbours_of_the_same_class() -> None:
    angles = np.array([0.0, 0.1, 1.0, 1.1, 2.0, 2.05])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert nearest_of_same_class(features, np.array([0, 0, 1, 1, 0, 2], np.int32)) == pytest.approx(4 / 6)
    assert nearest_of_same_class(features, np.array([0, 0, 1, 1, -1, -1], np.int32)) == 1
    assert np.isnan(nearest_of_same_class(features, np.full(6, -1, np.int32)))


def test_the_hottest_and_the_coldest() -> None:
    temperatures = np.random.default_rng(0).permutation(np.linspace(0.1, 0.9, 1000))
    found = extremes_of(temperatures)
    assert found is not None
    assert len(found[0]) == len(found[1]) == 55  # 5.5 %
    assert temperatures[found[0]].min() > 0.85
    assert temperatures[found[1]].max() < 0.15
    assert extremes_of(temperatures[:90]) is None
    assert extremes_of(np.full(1000, 0.3)) is None


def test_colours_go_to_the_most_frequent_classes() -> None:
    labels = Labels(np.zeros(0, np.int32), tuple(f"class {one}" for one in range(30)))
    classes = np.repeat(np.arange(30), np.arange(1, 31)).astype(np.int32)
    groups = palette(labels, classes, LIGHT).groups(classes, LIGHT)
    assert [name for name, _, _ in groups] == [*(f"class {one}" for one in range(20, 30)), "other classes"]
    assert groups[-1][1] == OTHER_CLASSES
    assert sum(members.sum() for _, _, members in groups) == len(classes)
    assert len({colour for _, colour, _ in groups}) == 11


def test_few_classes_have_no_others() -> None:
    labels = Labels(np.zeros(0, np.int32), ("cat", "dog"))
    classes = np.array([0, 1, 1], np.int32)
    assert [name for name, _, _ in palette(labels, classes, LIGHT).groups(classes, LIGHT)] == ["cat", "dog"]
    unlabelled = np.array([0, -1, 1], np.int32)
    assert palette(labels, unlabelled, LIGHT).others


def test_names_that_matplotlib_would_misread() -> None:
    assert plain_name("a $x_1$ b") == r"a \$x_1\$ b"
    assert plain_name("_hidden") == "hidden"
    assert plain_name("x" * 30) == "x" * 19 + "…"


class Backwards:
    """A reader that has its own order, as shards have, with one picture that is damaged and one that is missing."""

    problems: dict[str, str] = {}  # noqa: RUF012

    def some_shards(self, count: int) -> None: ...

    def read(self, rows: Any) -> Iterator[Source]:
        for row in reversed(rows.tolist()):
            picture: Any = Image.new("RGB", (2, 2), (row, 0, 0))
            yield Source(row, "shard", str(row), {3: None, 5: b"no picture"}.get(row, lambda one=picture: one))


class Red:
    def images(self, images: Sequence[Any]) -> tuple[Any, Any]:
        features = np.array([[image.getpixel((0, 0))[0]] for image in images], np.float32)
        return features, -features

    def texts(self, captions: Sequence[str]) -> Any:
        raise AssertionError(captions)


def test_features_stay_with_their_rows() -> None:
    rows, features = embed_rows(Backwards(), Red(), np.arange(200))
    assert rows.tolist() == [row for row in range(200) if row not in (3, 5)]
    assert features[:, 0].tolist() == rows.tolist()


def test_a_map_has_room_for_some() -> None:
    chosen = choose_rows(np.arange(0, 10_000, 5))
    assert len(set(chosen.tolist())) == 800
    assert (np.diff(chosen) > 0).all()
    assert choose_rows(np.array([9, 2])).tolist() == [2, 9]
