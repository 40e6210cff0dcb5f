"""The quick walk over headers reads what `tarfile` reads, and little more than the headers."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isogclr.shard_index.listing import list_shard
from isogclr.shard_index.sample_keys import sample_keys
from isogclr.shard_index.tar_headers import BLOCK, read_ordinary_members
from support.shard_writing import write_pairs, write_shard

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def ordinary(path: Path) -> tuple[list[bytes], list[int], int]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        members, offset = read_ordinary_members(descriptor, path.stat().st_size)
    finally:
        os.close(descriptor)
    return members.names, members.sizes, offset


def by_tarfile(path: Path) -> tuple[list[bytes], list[int]]:
    with tarfile.open(path, "r:", encoding="utf-8") as archive:
        files = [member for member in archive if member.isreg()]
    return [one.name.encode("utf-8", "surrogateescape") for one in files], [one.size for one in files]


def file_with_mtime(name: str, mtime: float) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.mtime = mtime  # type: ignore[assignment]  # webdataset's writer puts a float there
    return info


@pytest.mark.parametrize("tar_format", FORMATS)
def test_ordinary_shards_never_need_the_slow_reader(tmp_path: Path, tar_format: int) -> None:
    path = write_pairs(tmp_path / "0.tar", [f"{number:09d}" for number in range(5000)], tar_format)
    names, sizes, offset = ordinary(path)
    assert (names, sizes) == by_tarfile(path)
    assert path.read_bytes()[offset : offset + BLOCK] == bytes(BLOCK)


def test_pax_times_and_names_are_ordinary(tmp_path: Path) -> None:
    members = [file_with_mtime(f"{'long' * 40}/ü{number}.jpg", 1.5) for number in range(10)]
    path = write_shard(tmp_path / "0.tar", members, tarfile.PAX_FORMAT)
    names, sizes, offset = ordinary(path)
    assert (names, sizes) == by_tarfile(path)
    assert len(names) == 10
    assert offset == 10 * 3 * BLOCK


def test_ustar_prefixes(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "0.tar", [("d" * 90 + "/" + "n" * 60 + ".jpg", b"x")])
    assert ordinary(path)[0] == by_tarfile(path)[0] == [b"d" * 90 + b"/" + b"n" * 60 + b".jpg"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_the_walk_stops_in_front_of_what_is_not_ordinary(tmp_path: Path, kind: bytes) -> None:
    odd = tarfile.TarInfo("odd")
    odd.type = kind
    path = write_shard(tmp_path / "0.tar", [("a.jpg", b"x"), odd, ("b.jpg", b"x")])
    assert ordinary(path) == ([b"a.jpg"], [1], 2 * BLOCK)
    assert list_shard(str(path)).key_list() == [b"a", b"b"]


def header(**fields: bytes) -> bytes:
    """A header with raw fields and a checksum that fits them."""
    places = {"mode": 100, "uid": 108, "size": 124, "mtime": 136, "devmajor": 329}
    block = bytearray(tarfile.TarInfo("b.jpg").tobuf(tarfile.USTAR_FORMAT))
    for name, value in fields.items():
        block[places[name] : places[name] + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        ({}, True),
        ({"uid": b"        "}, True),
        ({"uid": b"12 34\0\0\0"}, False),
        ({"mode": b"rw-r--r-"}, False),
        ({"mtime": b"0x1234567890"}, False),
        ({"devmajor": b"9999999\0"}, False),
        ({"uid": b"\x80\0\0\0\0\0\0\x01"}, True),  # base 256
        ({"size": b"\x80" + bytes(11)}, True),
        ({"size": b"       0 \0\0\0"}, True),
        ({"size": b"+0000000000\0"}, True),  # Python's int takes a sign
    ],
)
def test_octal_fields_are_judged_as_tarfile_does(tmp_path: Path, fields: dict[str, bytes], accepted: bool) -> None:
    """`tarfile` takes a header that it can not parse for the end of the archive."""
    first, last = tarfile.TarInfo("a.jpg").tobuf(), tarfile.TarInfo("c.jpg").tobuf()
    path = tmp_path / "0.tar"
    path.write_bytes(first + header(**fields) + last + bytes(2 * BLOCK))
    listing = list_shard(str(path))
    assert listing.key_list() == ([b"a", b"b", b"c"] if accepted else [b"a"])
    assert bool(listing.notes) is not accepted


def test_a_size_of_twelve_digits(tmp_path: Path) -> None:
    path = tmp_path / "0.tar"
    blocks = [header(size=b"000000002000"), b"x" * 1024, tarfile.TarInfo("c.jpg").tobuf(), bytes(2 * BLOCK)]
    path.write_bytes(b"".join(blocks))
    assert list_shard(str(path)).key_list() == [b"b", b"c"]
    assert by_tarfile(path) == ([b"b.jpg", b"c.jpg"], [1024, 0])


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=120)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.lists(st.tuples(names, st.integers(0, 1600), st.sampled_from([0, 1.25])), max_size=6),
    tar_format=st.sampled_from(FORMATS[1:]),
)
def test_any_archive_that_tarfile_writes(
    tmp_path: Path, files: list[tuple[str, int, float]], tar_format: int
) -> None:
    path = tmp_path / "0.tar"
    with tarfile.open(path, "w", format=tar_format, encoding="utf-8") as archive:
        for name, size, mtime in files:
            info = file_with_mtime(name, mtime)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    found, sizes, _ = ordinary(path)
    expected, expected_sizes = by_tarfile(path)
    assert (found, sizes) == (expected[: len(found)], expected_sizes[: len(sizes)])
    assert list_shard(str(path)).key_list() == list(dict.fromkeys(sample_keys(expected, expected_sizes)))


def bytes_read() -> int:
    """All bytes that this process has asked the kernel for."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("tar_format", FORMATS)
@pytest.mark.parametrize("long_names", [False, True])
def test_reads_headers_only(tmp_path: Path, tar_format: int, long_names: bool) -> None:
    """At most 1.2 x 512 bytes for each header block; long names take the slow reader in the GNU format."""
    stem = "directory/" * 12 if long_names and tar_format != tarfile.USTAR_FORMAT else ""
    members = [(f"{stem}{number:06d}.jpg", bytes(20_000)) for number in range(300)]
    path = write_shard(tmp_path / "0.tar", members, tar_format)
    header_blocks = 300 * (3 if stem else 1) + 1  # a long name takes a header of its own and a block
    list_shard(str(path))  # imports and caches
    before = bytes_read()
    list_shard(str(path))
    assert 300 * BLOCK < bytes_read() - before <= 1.2 * BLOCK * header_blocks
