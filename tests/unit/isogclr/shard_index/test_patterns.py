"""Expansion of `--train-data`, and tables. open_clip's own expansion is compared in the integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from isogclr.csv_table import CsvColumns
from isogclr.errors import InputError, ShardIndexError
from isogclr.shard_index.patterns import csv_digests, expand_sources, is_csv


def test_a_list_is_taken_as_it_is() -> None:
    assert expand_sources(["{0..1}.tar", "a::b"]) == ["{0..1}.tar", "a::b"]


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(InputError, match="WDS_NOT_SET_ANYWHERE"):
        expand_sources("${NOT_SET_ANYWHERE}/0.tar")


def test_unbalanced_braces_are_shown() -> None:
    with pytest.raises(InputError, match=r"\{0\.\.1\.tar"):
        expand_sources("ok.tar::{0..1.tar")


def test_tables_are_recognised_as_open_clip_does() -> None:
    assert is_csv("a.csv")
    assert is_csv("a.tsv")
    assert not is_csv("a.tar")
    assert not is_csv("a.CSV")
    assert is_csv("a.txt", "csv")
    assert not is_csv("a.csv", "webdataset")


def test_digests_of_prefixes(tmp_path: Path) -> None:
    short, long = tmp_path / "short.csv", tmp_path / "long.csv"
    short.write_text("filepath\ttitle\na.jpg\tone\nb.jpg\ttwo\n")
    long.write_text("title\tfilepath\textra\none\ta.jpg\t1\ntwo\tb.jpg\t2\nthree\tc.jpg\t3\n")
    rows, digest, _ = csv_digests(str(short), CsvColumns())
    more, longer, (prefix, beyond) = csv_digests(str(long), CsvColumns(), [2, 9])
    assert (rows, more) == (2, 3)
    assert prefix == digest != longer
    assert beyond == b""


def test_a_missing_column_is_named_with_those_there_are(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("path,caption\na.jpg,one\n")
    with pytest.raises(ShardIndexError, match=r"can not be read: .*'filepath'.*'path', 'caption'"):
        csv_digests(str(table), CsvColumns(separator=","))
    assert csv_digests(str(table), CsvColumns(",", "path", "caption"))[0] == 1


def test_a_missing_table(tmp_path: Path) -> None:
    with pytest.raises(ShardIndexError, match=r"gone\.csv does not exist"):
        csv_digests(str(tmp_path / "gone.csv"), CsvColumns())
