"""Names of icons, and who is kept apart for testing."""

from __future__ import annotations

import numpy as np
import pytest

from support.data_scripts import script

icons, features = script("icons"), script("icon_features")


@pytest.mark.parametrize(
    ("icon", "name"),
    [
        ("calendar-check-outline", "calendar check"),
        ("home-24-filled", "home"),
        ("Arrow-Up", "arrow up"),
        ("outline-24", ""),
        ("24-7", ""),
        ("mp3", "mp3"),
    ],
)
def test_names_without_style(icon: str, name: str) -> None:
    assert icons.without_style(icon) == name


def test_one_icon_per_name_the_plainest() -> None:
    found = icons.plainest({"home-outline": {}, "home": {}, "home-24-filled": {}, "door-bold": {}})
    assert found == {"home": "home", "door": "door-bold"}


def test_authors_are_split_by_their_names_alone() -> None:
    authors = [f"author {number}" for number in range(2000)]
    found = [icons.split_of(author) for author in authors]
    assert found == [icons.split_of(author) for author in authors]
    assert 0.02 < found.count(1) / 2000 < 0.08
    assert 0.07 < found.count(2) / 2000 < 0.13


def test_features_have_a_name_once() -> None:
    split = np.array([0, 0, 0, 1, 2, 2], dtype=np.int8)
    pairs, places, names = features.pair_up(split, ["home", "door", "home", "door", "key", "home"], limit=2)
    assert names == sorted(set(names))
    assert [len(pairs[name].image) for name in ("train", "validation", "test")] == [2, 1, 2]
    assert places[2:].tolist() == [3, 4, 5]
    assert [names[number] for number in pairs["test"].text] == ["key", "home"]
    assert places[pairs["test"].image].tolist() == [4, 5]
