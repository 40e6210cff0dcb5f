"""Names of icons, and who is kept apart for testing."""

from __future__ import annotations

import pytest

from support.data_scripts import script

icons = script("icons")


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
