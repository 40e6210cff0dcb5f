"""Grouping of tar members into samples, by hand; the integration tests compare with open_clip's reader."""

from __future__ import annotations

import pytest

from isogclr.shard_index.sample_keys import ReservedSuffixError, sample_keys


def keys(*names: str, size: int = 1) -> list[bytes]:
    return sample_keys([name.encode() for name in names], [size] * len(names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("a.jpg", "a.txt", "b.jpg"), [b"a", b"b"]),
        (("a.b.jpg", "a.b.txt"), [b"a"]),  # the key ends at the first dot
        (("a.JPG", "a.txt"), [b"a"]),
        (("a.jpg", "a.JPG"), [b"a", b"a"]),  # the same suffix again begins another sample
        (("x.y/a.jpg", "x.y/a.txt"), [b"x.y/a"]),  # dots in directories do not count
        (("d/a.jpg", "e/a.jpg"), [b"d/a", b"e/a"]),
        (("./a.jpg",), [b"./a"]),
        (("/abs/a.jpg", "../a.jpg"), [b"/abs/a", b"../a"]),
        (("noext", "a.jpg", ".hidden"), [b"a"]),
        (("d/.hidden",), [b"d/"]),  # odd, and what webdataset's pattern gives
        (("a.jpg", "b.jpg", "a.txt"), [b"a", b"b", b"a"]),
        (("__meta__", "__x__/a.jpg", "__x.y__", "a.jpg"), [b"a"]),
        (("__x__a.jpg",), [b"__x__a"]),
        (("a.É", "a.é"), [b"a", b"a"]),  # lower case as text, not as bytes
        (("a.", "a.jpg"), [b"a"]),
        (("line\nbreak.jpg",), [b"line\nbreak"]),
        ((), []),
    ],
)
def test_groups(names: tuple[str, ...], expected: list[bytes]) -> None:
    assert keys(*names) == expected


def test_a_sample_marked_bad_is_dropped_unless_the_mark_is_empty() -> None:
    assert keys("a.jpg", "a.__bad__", "b.jpg") == [b"b"]
    assert keys("a.jpg", "a.__bad__", "b.jpg", size=0) == [b"a", b"b"]


@pytest.mark.parametrize("suffix", ["__key__", "__URL__"])
def test_a_member_that_would_replace_the_key_is_refused(suffix: str) -> None:
    with pytest.raises(ReservedSuffixError, match=r"a\.__"):
        keys("a.jpg", f"a.{suffix}")


def test_keys_are_bytes_that_need_not_be_text() -> None:
    assert sample_keys([b"\xff\xfe.jpg", b"\xff\xfe.txt"], [1, 1]) == [b"\xff\xfe"]
