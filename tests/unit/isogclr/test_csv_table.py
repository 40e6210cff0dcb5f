"""One reader of tables, in two ways: as open_clip reads when it trains, and as it is written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from isogclr.csv_table import CsvColumns, is_table, read_table
from isogclr.errors import ShardIndexError

LINES = ["filepath\ttitle", "a.jpg\t007", "", "b.jpg\t", " ", "c.jpg\tnull", "d.jpg", 'e.jpg\t"two\nlines"']


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "train.tsv"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return str(path)


def test_types_are_inferred_as_open_clip_does(table: str) -> None:
    from open_clip_train.data import CsvDataset  # noqa: PLC0415 (takes seconds)

    theirs = CsvDataset(table, None, "filepath", "title")
    images, captions = read_table(table, CsvColumns(), as_text=False)
    assert images == theirs.images
    assert list(map(str, captions)) == list(map(str, theirs.captions))
    assert list(map(str, captions)) == ["007", "nan", "nan", "nan", "two\nlines"]


def test_as_it_is_written(table: str) -> None:
    images, captions = read_table(table, CsvColumns(), as_text=True)
    assert images == ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg"]
    assert captions == ["007", "", "null", "", "two\nlines"]


@pytest.mark.parametrize("as_text", [True, False])
def test_what_is_wrong(table: str, as_text: bool) -> None:
    with pytest.raises(
        ShardIndexError,
        match=r"read: it has no column 'text', only 'filepath', 'title': .* --csv-caption-key",
    ):
        read_table(table, CsvColumns(caption="text"), as_text=as_text)
    with pytest.raises(ShardIndexError, match=r"can not be read: it has no column 'image'.* --csv-img-key"):
        read_table(table, CsvColumns(image="image"), as_text=as_text)
    with pytest.raises(ShardIndexError, match=r"gone\.csv does not exist"):
        read_table(f"{table}.gone.csv", CsvColumns(), as_text=as_text)
    Path(table).write_bytes(b"filepath\ttitle\n\xff\t\xff\n")
    with pytest.raises(ShardIndexError, match=r"can not be read: .*can't decode"):
        read_table(table, CsvColumns(), as_text=as_text)


@pytest.mark.parametrize(("separator", "written"), [(",", ","), (";", "';'"), ("|", "'|'")])
def test_another_separator(table: str, separator: str, written: str) -> None:
    Path(table).write_text(f"filepath{separator}title\na.jpg{separator}a dog\n", encoding="utf-8")
    with pytest.raises(ShardIndexError, match=re.escape(f"say so with --csv-separator {written}")):
        read_table(table, CsvColumns(), as_text=True)
    assert read_table(table, CsvColumns(separator), as_text=True) == (["a.jpg"], ["a dog"])


def test_a_table_of_tabs_read_with_commas(table: str) -> None:
    Path(table).write_text("filepath\ttitle\na.jpg\ta dog\n", encoding="utf-8")
    with pytest.raises(ShardIndexError, match=re.escape("separated by '\\t'; say so with --csv-separator $'\\t'")):
        read_table(table, CsvColumns(","), as_text=True)


def test_commas_in_captions(table: str) -> None:
    """Such a table is often cut in other places: pandas finds too many fields in some line."""
    Path(table).write_text("filepath,title\na.jpg,a\tdog\nb.jpg,a\tb\tc\n", encoding="utf-8")
    with pytest.raises(ShardIndexError, match="--csv-separator"):
        read_table(table, CsvColumns(), as_text=True)


def test_the_end_of_the_name_decides() -> None:
    assert all(map(is_table, ("a.csv", "a.b.tsv")))
    assert not any(map(is_table, ("a.CSV", "a.tar", "csv.txt")))


def test_the_command_line_stays_light() -> None:
    code = "import sys, isogclr.cli; sys.exit(bool({'numpy', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
