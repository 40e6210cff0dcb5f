"""`isogclr index …`: what a user sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from isogclr.cli import main
from isogclr.shard_index.index import ShardIndex
from support.shard_writing import write_pairs, write_shard


@pytest.fixture
def data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    for shard in range(2):
        write_pairs(tmp_path / "data" / f"{shard}.tar", ["a", "b"])
    assert run(tmp_path, "build", f"{tmp_path}/data/{{0..1}}.tar", "--workers", "1", "--quiet") == 0
    assert "4 rows, 4 of them new; shards: 2 new" in capsys.readouterr().out
    return tmp_path


def run(root: Path, action: str, *arguments: str) -> int:
    return main(["index", action, str(root / "index"), *arguments])


def test_info(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "info", "--shards") == 0
    out = capsys.readouterr().out
    assert "rows         4" in out
    assert "keys that are gone: 0" in out
    assert f"1.tar\t2\tpresent\t{data}/data/1.tar" in out
    assert ShardIndex.load(data / "index").fingerprint in out


def test_lookup(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "lookup", "1.tar", "b") == 0
    assert run(data, "lookup", f"{data}/data/0.tar") == 0
    assert run(data, "lookup", "--row", "3", "0") == 0
    assert capsys.readouterr().out == "3\tb\n0\ta\n1\tb\n3\t1.tar\tb\n0\t0.tar\ta\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1.tar", "x"), "no key 'x'"),
        (("9.tar",), "not in the index"),
        (("--row", "9"), "row 9"),
        ((), "name a shard"),
    ],
)
def test_lookup_errors_are_one_line(
    data: Path, arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(data, "lookup", *arguments) == 1
    err = capsys.readouterr().err
    assert err.startswith("isogclr: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_verify(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(data, "verify") == 0
    assert "the index is whole" in capsys.readouterr().out
    assert run(data, "verify", "--all-shards", "--workers", "1") == 0
    assert "those that it was built from" in capsys.readouterr().out
    write_pairs(data / "data" / "0.tar", ["c"])
    assert run(data, "verify", "--shards", f"{data}/data/0.tar", "--workers", "1") == 1
    assert "0.tar has other members" in capsys.readouterr().err
    rows = data / "index" / "rows-1.bin"
    rows.write_bytes(rows.read_bytes()[:-1] + b"\1")
    assert run(data, "verify") == 1
    assert "rows-1.bin has checksum" in capsys.readouterr().err


def test_build_shows_warnings_and_progress(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_shard(data / "data" / "2.tar", [("a.jpg", b""), ("a.jpg", b"")])
    assert run(data, "build", f"{data}/data/{{0..2}}.tar", "--workers", "1") == 0
    captured = capsys.readouterr()
    assert "isogclr: warning: shard" in captured.err
    assert "2.tar: 1 samples repeat a key" in captured.err
    assert "reading headers: 100%" in captured.err
    assert "5 rows, 1 of them new; shards: 1 new, 0 changed, 0 moved, 2 known" in captured.out


def test_build_of_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.csv").write_text("image,text\na.jpg,b\n")
    flags = ("--csv-separator", ",", "--csv-img-key", "image", "--csv-caption-key", "text")
    assert run(tmp_path, "build", str(tmp_path / "train.csv"), *flags) == 0
    assert "1 rows" in capsys.readouterr().out


def test_a_missing_shard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "build", f"{tmp_path}/0.tar") == 1
    assert "0.tar does not exist: bring it back" in capsys.readouterr().err


def test_a_terminal_obeys_no_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escape sequences that would clear the screen or set its title, and letters that turn the line around."""
    key = "\x1b]0;owned\x07\x1b[2J\u202edoof\x9b"
    write_pairs(tmp_path / "data" / "\x1b[31m.tar", [key])
    assert run(tmp_path, "build", f"{tmp_path}/data/\x1b[31m.tar", "--workers", "1", "--quiet") == 0
    for arguments in (("info", "--shards"), ("lookup", "--row", "0"), ("lookup", "\x1b[31m.tar")):
        assert run(tmp_path, *arguments) == 0
    assert run(tmp_path, "lookup", "\x1b[32m.tar") == 1
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert not set("\x1b\x07\x9b\u202e") & set(text)
    assert captured.out.count(r"\x1b]0;owned\x07\x1b[2J\u202edoof\x9b") == 2


def test_a_pattern_without_quotes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(tmp_path, "build", "s-0.tar", "s-1.tar", "s-2.tar")
    assert caught.value.code == 2
    assert "unrecognized arguments: s-1.tar s-2.tar; quote a pattern" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(tmp_path, "build", "s-0.tar", "--wrokers", "2")
    assert "quote" not in capsys.readouterr().err
