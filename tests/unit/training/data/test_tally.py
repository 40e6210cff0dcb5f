"""The evidence of a pass that gave no batch, and the one sentence that it leads to."""

from __future__ import annotations

import logging

import pytest

from isogclr.errors import DataError
from training.data.image_text import PairFiles
from training.data.tally import Tally


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (
            Tally(PairFiles(), unreadable_shards=1_200, first_shard_error="a.tar: OSError('gone')"),
            "tried 1,200 times to read a shard and got no sample, first from a.tar: OSError('gone')",
        ),
        (
            Tally(PairFiles(), drawn=7, undecodable=5, first_decoding_error="a.tar 7: x"),
            "all 5 images that a data worker has read failed to decode, the first is a.tar 7: x",
        ),
        (
            Tally(PairFiles(), drawn=9, extensions={"json", "gif"}),
            "none of 9 samples has a caption and an image; found the extensions gif, json, expected .txt and",
        ),
        (
            Tally(PairFiles(), drawn=9),
            "none of 9 samples has a caption and an image; found the extensions nothing, expected",
        ),
        (
            Tally(PairFiles(), drawn=12, usable=6, undecodable=2),
            "hold 6 usable samples (4 without image or caption, 2 undecodable), fewer than one batch of 1,024",
        ),
        (
            Tally(PairFiles()),
            "hold 0 usable samples (0 without image or caption, 0 undecodable)",
        ),
        (
            Tally(PairFiles(), drawn=2, usable=2, unreadable_shards=3, first_shard_error="a.tar: x"),
            "hold 2 usable samples",
        ),
    ],
    ids=["no shard", "no image", "extensions", "no file", "too few", "nothing", "few and damaged"],
)
def test_the_complaint_names_the_evidence(tally: Tally, said: str) -> None:
    complaint = tally.complaint(1_024)
    assert type(complaint) is DataError
    assert said in str(complaint)


def test_few_extensions_are_shown() -> None:
    said = str(Tally(PairFiles(), drawn=1, extensions={f"e{number:02d}" for number in range(40)}).complaint(8))
    assert "e11, expected" in said
    assert "e12" not in said


def test_an_undecodable_image_is_counted_and_the_first_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(PairFiles(), drawn=4, usable=1)
    with caplog.at_level(logging.WARNING):
        tally.note_undecodable("a.tar one", ValueError("first"))
        tally.note_undecodable("a.tar two", ValueError("second"))
    assert (tally.undecodable, tally.incomplete) == (2, 1)
    assert tally.first_decoding_error == "a.tar one: ValueError('first')"
    assert [record.getMessage() for record in caplog.records] == [
        "a.tar one can not be decoded (ValueError('first')); it is left out",
        "a.tar two can not be decoded (ValueError('second')); it is left out",
    ]


def test_a_damaged_shard_is_counted_and_the_first_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    tally = Tally(PairFiles())
    with caplog.at_level(logging.WARNING):
        tally.note_shard("a.tar", OSError("first"))
        tally.note_shard("b.tar", OSError("second"))
    assert (tally.unreadable_shards, tally.undecodable) == (2, 0)
    assert tally.first_shard_error == "a.tar: OSError('first')"
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["shard a.tar", "shard b.tar"]
