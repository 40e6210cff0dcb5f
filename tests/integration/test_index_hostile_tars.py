"""Shards that are odd, damaged or hostile: the index holds what open_clip's own reader yields, or says why not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isogclr.errors import ShardIndexError, ShardWarning
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.listing import Listing, list_shard
from isogclr.shard_index.patterns import expand_sources
from isogclr.shard_index.sample_keys import sample_keys
from support.shard_writing import open_clip_samples, pairs, write_pairs, write_shard

GNU, PAX = tarfile.GNU_FORMAT, tarfile.PAX_FORMAT
LONG = "directory/" * 30


def reader_keys(path: Path | str) -> list[bytes]:
    """Distinct keys, in the order in which open_clip's reader yields them."""
    keys = [key.encode("utf-8", "surrogateescape") for _, key in open_clip_samples([path])]
    return list(dict.fromkeys(keys))


def link(name: str, kind: bytes, target: str = "a.jpg") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def mixed(path: Path) -> None:
    """Everything that is legal in one archive, so that the slow reader and the quick one take turns."""
    odd = [link("d.jpg", tarfile.SYMTYPE), link("e.jpg", tarfile.LNKTYPE), link("folder.jpg", tarfile.DIRTYPE)]
    odd += [link("f.jpg", tarfile.FIFOTYPE), link("g.jpg", tarfile.CHRTYPE)]
    write_shard(path, [*pairs("ab"), *odd, *pairs("ch")], PAX)


def contiguous(path: Path) -> None:
    """Types 7 and zero are regular files for `tarfile`; an unknown type is skipped with its payload."""
    blocks = []
    for name, kind in (("a.jpg", b"7"), ("b.jpg", b"\0"), ("c.jpg", b"Q"), ("d.jpg/", b"\0"), ("e.jpg", b"0")):
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, 0 if name.endswith("/") else 3
        blocks.append(info.tobuf(tarfile.USTAR_FORMAT) + (b"" if name.endswith("/") else b"xyz" + bytes(509)))
    path.write_bytes(b"".join(blocks) + bytes(1024))


def global_header(path: Path) -> None:
    with tarfile.open(path, "w", format=PAX, pax_headers={"comment": "all of it"}) as archive:
        for name, payload in pairs("ab"):
            info = tarfile.TarInfo(str(name))
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))


def compressed(opener: Callable[..., io.IOBase]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        plain = write_pairs(path.with_suffix(".plain"), "abc")
        with opener(path, "wb") as file:
            file.write(plain.read_bytes())

    return write


def joined(path: Path) -> None:
    """Two archives one behind the other: the reader stops at the first end marker."""
    one, two = write_pairs(path.with_suffix(".1"), "ab"), write_pairs(path.with_suffix(".2"), "cd")
    path.write_bytes(one.read_bytes() + two.read_bytes())


SAME: dict[str, Callable[[Path], object]] = {
    "plain": lambda path: write_pairs(path, "abc"),
    "no members": lambda path: write_shard(path, []),
    "pax long names": lambda path: write_pairs(path, [LONG + "a", LONG + "b"], PAX),
    "gnu long names": lambda path: write_pairs(path, [LONG + "a", LONG + "b", "c"], GNU),
    "absolute and upward names": lambda path: write_pairs(path, ["/etc/passwd", "../../up", "./here", "a/../b"]),
    "not utf-8": lambda path: write_shard(path, [(b"\xff\xfe\x80.jpg", b"x"), (b"\xff\xfe\x80.txt", b"x")]),
    "not utf-8, pax": lambda path: write_shard(path, [(b"\xff" * 150 + b".jpg", b"x"), (b"\xe4.txt", b"")], PAX),
    "not utf-8, gnu": lambda path: write_shard(path, [(b"\xff" * 150 + b".jpg", b"x"), (b"\xe4.txt", b"")], GNU),
    "unicode": lambda path: write_pairs(path, ["schön", "日本", "e\u0301", "\u00e9"], PAX),
    "no payload": lambda path: write_shard(path, [("a.jpg", b""), ("a.txt", b""), ("b.jpg", b"")]),
    "dots and cases": lambda path: write_shard(path, [("a.b.JPG", b"1"), ("a.c.jpg", b"2"), ("A.b.jpg", b"3")]),
    "directories": lambda path: write_pairs(path, ["x.y/a", "x.y/z/a", "a"]),
    "hidden and bare names": lambda path: write_shard(path, [(".a", b""), ("b", b""), ("d/.c", b""), ("e.", b"")]),
    "meta files": lambda path: write_shard(path, [("__m__", b""), ("__a__/b.jpg", b""), ("__c.jpg", b"")]),
    "marked bad": lambda path: write_shard(path, [("a.jpg", b""), ("a.__bad__", b"1"), ("b.__bad__", b"")]),
    "links, folders, devices": mixed,
    "odd types": contiguous,
    "global pax header": global_header,
    "gzip": compressed(gzip.open),
    "bzip2": compressed(bz2.open),
    "xz": compressed(lzma.open),
    "two archives joined": joined,
    "line breaks": lambda path: write_pairs(path, ["a\nb", "\n", "c\n"]),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_samples_without_a_word(tmp_path: Path, name: str) -> None:
    path = tmp_path / "00000.tar"
    SAME[name](path)
    before = sorted(tmp_path.rglob("*"))
    listing = list_shard(str(path))
    assert listing.key_list() == reader_keys(path)
    assert listing.notes == ()
    assert sorted(tmp_path.rglob("*")) == before, "something was extracted"
    if name != "no members":
        assert len(listing.ends)


@pytest.mark.parametrize("options", [["gnu"], ["posix"], ["posix", "0.1"], ["posix", "0.0"]], ids=" ".join)
@pytest.mark.parametrize("gzipped", [False, True])
def test_sparse_members(tmp_path: Path, options: list[str], gzipped: bool) -> None:
    """Holes are not stored: the payload is shorter than the size that the header gives."""
    for name in ("a", "b", "c"):
        with (tmp_path / f"{name}.jpg").open("wb") as file:
            for piece in range(6 if name != "b" else 0):
                file.seek(piece * 100_000)
                file.write(b"data" * 100)
    flags = [f"--format={options[0]}", *(f"--sparse-version={version}" for version in options[1:])]
    path = tmp_path / "00000.tar"
    command = ["tar", "--sparse", *flags, "-C", str(tmp_path), "-cf", str(path), "a.jpg", "b.jpg", "c.jpg"]
    subprocess.run(command, check=True)
    assert path.stat().st_size < 60_000
    if gzipped:
        path.write_bytes(gzip.compress(path.read_bytes()))
    listing = list_shard(str(path))
    assert listing.key_list() == reader_keys(path) == [b"a", b"b", b"c"]
    assert listing.notes == ()


def truncated(data: bytes) -> list[bytes]:
    return [data[:length] for length in range(0, len(data), 97)]


def agree(path: Path) -> Listing:
    """The same samples; and if something was lost, a note that names the shard."""
    listing = list_shard(str(path))
    assert listing.key_list() == reader_keys(path)
    assert all(str(path) in note for note in listing.notes)
    return listing


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, GNU, PAX])
def test_truncated_anywhere(tmp_path: Path, tar_format: int) -> None:
    path = tmp_path / "00000.tar"
    keys = ["a", LONG + "b"] if tar_format != tarfile.USTAR_FORMAT else ["a", "b"]
    whole = write_pairs(path, keys, tar_format).read_bytes()
    complete = len(whole.rstrip(b"\0")) // 512 * 512 + 512 + 512  # the last payload and the first end block
    for data in truncated(whole):
        path.write_bytes(data)
        listing = agree(path)
        assert bool(listing.notes) == (len(data) < complete), len(data)


def test_a_truncated_gzip(tmp_path: Path) -> None:
    path = tmp_path / "00000.tar"
    members = [(f"{number}.jpg", random.Random(number).randbytes(3000)) for number in range(5)]
    whole = gzip.compress(write_shard(path, members).read_bytes())
    for data in truncated(whole)[1::7]:
        path.write_bytes(data)
        assert agree(path).notes


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"no tar at all" * 100, b"\x1f\x8b\x08broken"])
def test_what_is_no_tar_gives_no_samples_and_a_warning(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "00000.tar"
    path.write_bytes(content)
    with pytest.warns(ShardWarning, match=r"shard .*00000\.tar: "):
        index = ShardIndex.build(str(path), tmp_path / "index", workers=1)
    assert index.number_of_rows == 0
    assert reader_keys(path) == []


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, GNU, PAX])
def test_any_byte_changed(tmp_path: Path, tar_format: int) -> None:
    """Headers are what matters, so most changes go there."""
    path = tmp_path / "00000.tar"
    keys = ["a", LONG + "b", "c"] if tar_format != tarfile.USTAR_FORMAT else ["a", "b", "c"]
    whole = write_pairs(path, keys, tar_format).read_bytes()
    chance = random.Random(tar_format)
    used = len(whole.rstrip(b"\0"))
    noted = 0
    for _ in range(250):
        changed = bytearray(whole)
        changed[chance.randrange(used)] = chance.choice([0, 32, 48, 49, 55, 128, 255, chance.randrange(256)])
        path.write_bytes(changed)
        noted += bool(agree(path).notes)
    assert noted > 20


STRANGE = {
    "name": range(100),
    "size": range(130, 135),  # the low digits: the reader itself would never come back from a huge one
    "type": range(156, 157),
    "prefix": range(345, 500),
    "sparse": [place + digit for place in (386, 398, 410, 422, 483) for digit in range(7, 11)] + [482],
}


@pytest.mark.parametrize("field", STRANGE)
def test_any_header_that_is_consistent_but_strange(tmp_path: Path, field: str) -> None:
    """Random fields with a checksum that fits: hostile, not damaged."""
    path = tmp_path / "00000.tar"
    whole = write_pairs(path, "abc").read_bytes()
    chance = random.Random(field)
    pool = b"\0 0127" if field in ("size", "sparse") else b"\0\0 0127SLKxgX57Q\x80\xff./_"
    start = 3 * 512  # the header of a.txt
    for _ in range(100):
        changed = bytearray(whole)
        if field == "sparse":
            changed[start + 156] = ord("S")
        for place in STRANGE[field]:
            if field == "type" or chance.random() < 0.3:
                changed[start + place] = chance.choice(pool)
        changed[start + 148 : start + 156] = b" " * 8
        changed[start + 148 : start + 156] = b"%06o\0 " % sum(changed[start : start + 512])
        path.write_bytes(changed)
        listing = list_shard(str(path))
        if listing.key_list() != reader_keys(path):
            assert listing.notes, "other samples, and not a word"


def test_a_pax_record_without_a_length(tmp_path: Path) -> None:
    """`tarfile` takes it for a damaged header, and ends there without a word."""
    path = tmp_path / "00000.tar"
    timed = tarfile.TarInfo("b.jpg")
    timed.mtime = 1.5
    whole = write_shard(path, [("a.jpg", b""), timed, ("c.jpg", b"")], PAX).read_bytes()
    assert agree(path).key_list() == [b"a", b"b", b"c"]
    path.write_bytes(whole.replace(b"13 mtime=1.5\n", b"00 mtime=1.5\n"))
    assert agree(path).key_list() == [b"a"]


@pytest.mark.timeout(20)
def test_a_negative_size_does_not_loop(tmp_path: Path) -> None:
    """The third header sends `tarfile` back to the second one."""
    path = tmp_path / "00000.tar"
    whole = bytearray(
        write_shard(path, [("z.jpg", b""), ("a.jpg", b""), ("a.txt", b""), ("b.jpg", b"")]).read_bytes()
    )
    whole[1024 + 124 : 1024 + 136] = b"\xff" * 10 + b"\xfc\x00"  # base 256: -1024
    whole[1024 + 148 : 1024 + 156] = b" " * 8
    whole[1024 + 148 : 1024 + 156] = b"%06o\0 " % sum(whole[1024:1536])
    path.write_bytes(whole)
    listing = list_shard(str(path))
    assert "points backwards" in listing.notes[0]
    assert listing.key_list() == reader_keys(path) == [b"z", b"a"]


def test_a_member_that_replaces_its_own_key_is_refused_by_name(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "00000.tar", [("a.jpg", b"x"), ("a.__key__", b"forged")])
    assert open_clip_samples([path])[1][1] == b"forged"
    with pytest.raises(ShardIndexError, match=r"00000\.tar can not be read: .*a\.__key__"):
        list_shard(str(path))


def test_keys_repeated_in_a_shard_share_a_row_with_a_warning(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "00000.tar", ["a", "b", "a", "a"])
    with pytest.warns(ShardWarning, match=r"00000\.tar: 2 samples repeat a key .*'a'"):
        index = ShardIndex.build(str(path), tmp_path / "index", workers=1)
    assert index.number_of_rows == 2
    rows = [index.shard(url).row(key) for url, key in open_clip_samples([path])]
    assert rows == [0, 1, 0, 0]


def test_keys_repeated_across_shards_have_rows_of_their_own(tmp_path: Path) -> None:
    paths = [write_pairs(tmp_path / f"{number}.tar", ["a", "b"]) for number in range(3)]
    index = ShardIndex.build(list(map(str, paths)), tmp_path / "index", workers=1)
    assert [index.shard(url).row(key) for url, key in open_clip_samples(paths)] == list(range(6))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_sample_split_over_the_end_of_a_shard(tmp_path: Path, order: tuple[int, int]) -> None:
    """open_clip's reader joins the halves if the shards follow each other; whatever it yields has a row."""
    halves = (
        write_shard(tmp_path / "0.tar", [*pairs("a"), ("split.jpg", b"image")]),
        write_shard(tmp_path / "1.tar", [("split.txt", b"text"), *pairs("b")]),
    )
    index = ShardIndex.build([str(path) for path in halves], tmp_path / "index", workers=1)
    assert index.number_of_rows == 4
    samples = open_clip_samples([halves[number] for number in order])
    assert len(samples) == (3 if order == (0, 1) else 4)
    rows = [index.shard(url).row(key) for url, key in samples]
    assert len(set(rows)) == len(rows)


def test_what_webdataset_opens_by_a_command(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "00000.tar", ["a", "b"])
    url = f"pipe:cat {path}"
    assert list_shard(url).key_list() == reader_keys(url) == [b"a", b"b"]
    index = ShardIndex.build([url], tmp_path / "index", workers=1)
    assert index.shard(url).row("b") == index.shard(str(path)).row("b") == 1
    with pytest.raises(ShardIndexError, match="exit 3 can not be read: "):
        list_shard(f"pipe:cat {path}; exit 3")
    with pytest.raises(ShardIndexError, match=r"nothing://0\.tar can not be read: "):
        list_shard("nothing://0.tar")


def test_addresses_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_pairs(tmp_path / "00000.tar", ["a"])
    assert list_shard(f"file://{path}").key_list() == reader_keys(f"file://{path}") == [b"a"]
    monkeypatch.setenv("GOPEN_REWRITE", f"virtual={tmp_path}")
    assert list_shard("virtual/00000.tar").key_list() == reader_keys("virtual/00000.tar") == [b"a"]


name_parts = st.text(st.sampled_from([*"ab./_\n", "A", "é", "É", "\udcff"]), max_size=9)


@settings(max_examples=300, deadline=None)
@given(st.lists(name_parts, max_size=8))
def test_grouping_is_that_of_open_clip(members: list[str]) -> None:
    """Any names, also such as hardly anybody would write into a tar."""
    from open_clip_train.data import group_by_keys_nothrow  # noqa: PLC0415 (takes seconds)
    from webdataset.tariterators import tar_file_iterator  # noqa: PLC0415

    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=PAX, encoding="utf-8", errors="surrogateescape") as archive:
        for name in members:
            archive.addfile(tarfile.TarInfo(name or "x"))
    stream.seek(0)
    samples = group_by_keys_nothrow({**file, "__url__": "u"} for file in tar_file_iterator(stream))
    expected = [sample["__key__"].encode("utf-8", "surrogateescape") for sample in samples]
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        names = [one.name.encode("utf-8", "surrogateescape") for one in archive if one.isreg()]
    assert sample_keys(names, [0] * len(names)) == expected


@pytest.mark.parametrize(
    "sources",
    [
        "a.tar",
        "d/{00000..00012}.tar",
        "d/{00000..00004..2}.tar::e/{a,b}/{1..2}.tar",
        "a.tar::a.tar",
        "${ROOT}/{0..1}.tar",
        "${NESTED}/0.tar",
        "pipe:cat {0..1}.tar || true",
        r"a\{b.tar",
        "{single}.tar",
        "::a.tar",
        ["{0..1}.tar", "a::b"],
    ],
)
def test_patterns_expand_as_in_open_clip(sources: str | list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from open_clip_train.data import expand_urls  # noqa: PLC0415

    monkeypatch.setenv("WDS_ROOT", "/data/{x,y}")
    monkeypatch.setenv("WDS_NESTED", "${ROOT}/n")
    assert expand_sources(sources) == expand_urls(sources)[0]


def test_a_table_has_the_rows_that_open_clip_reads(tmp_path: Path) -> None:
    from open_clip_train.data import CsvDataset  # noqa: PLC0415

    table = tmp_path / "train.csv"
    table.write_text('filepath\ttitle\na.jpg\t"two\nlines"\n\nb.jpg\t\nc.jpg\tthree\n')
    dataset = CsvDataset(str(table), None, "filepath", "title")
    index = ShardIndex.build(str(table), tmp_path / "index")
    assert index.number_of_rows == len(dataset) == 3
    assert index.shard(str(table)).rows(range(3)).tolist() == [0, 1, 2]


def test_nothing_of_torch_or_open_clip_is_needed_for_local_shards(tmp_path: Path) -> None:
    path = write_pairs(tmp_path / "0.tar", "ab")
    code = (
        "import sys; from isogclr.shard_index.index import ShardIndex;"
        f"ShardIndex.build({str(path)!r}, {str(tmp_path / 'index')!r}, workers=1).shard({str(path)!r}).row('a');"
        "print([name for name in ('torch', 'webdataset', 'open_clip_train', 'pandas') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert run.stdout == "[]\n"
