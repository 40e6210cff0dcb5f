"""Damage of every kind is refused with a typed error: flipped bytes, cut files, other formats, newer versions."""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isogclr.errors import (
    DamagedFileError,
    ForeignFileError,
    InputError,
    NewerVersionError,
    StoreError,
    TruncatedFileError,
)
from isogclr.state.generations import (
    STORE_SNAPSHOT,
    find_snapshot,
    latest,
    load_generation,
    prune,
    write_generation,
)
from isogclr.state.layout import BLOCK_ROWS, LIVE_MAGIC, PAGE_BYTES, SNAPSHOT_MAGIC, Header, encode_header
from isogclr.state.manifest import MANIFEST
from isogclr.state.snapshot import Snapshot
from isogclr.state.store import StateStore
from support.store_cases import FILE, FINGERPRINT, ISOGCLR, MEMORY, STATELESS, small_snapshot, values_of


def _verify(path):
    with Snapshot(path) as snapshot:
        snapshot.verify()


@pytest.fixture
def snapshot(tmp_path):
    """Small: two blocks of 16 KiB, the second with one row."""
    return small_snapshot(tmp_path / "snapshot", rows=BLOCK_ROWS + 1, schema=STATELESS)


@pytest.fixture
def generation(tmp_path):
    with write_generation(tmp_path / "root", step=7) as folder:
        (folder / "model.pt").write_bytes(b"model")
        small_snapshot(folder / STORE_SNAPSHOT)
    return latest(tmp_path / "root").path


def _flip(path, position, mask):
    descriptor = os.open(path, os.O_RDWR)
    byte = os.pread(descriptor, 1, position)[0]
    os.pwrite(descriptor, bytes([byte ^ mask]), position)
    os.close(descriptor)


def test_every_flipped_byte_of_a_snapshot_is_found(snapshot):
    """Every byte of the file, one at a time: header, second page, rows, padding, checksums."""
    _verify(snapshot)
    size = snapshot.stat().st_size
    assert size == 2 * PAGE_BYTES + 2 * BLOCK_ROWS * 8 + 12
    for position in range(size):
        mask = 1 << (position % 8) if position % 3 else 0xFF
        _flip(snapshot, position, mask)
        with pytest.raises(DamagedFileError if position >= 8 else ForeignFileError):
            _verify(snapshot)
        _flip(snapshot, position, mask)
    _verify(snapshot)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_other_content_of_a_snapshot_is_refused(tmp_path_factory, data):
    """Fuzz: some bytes anywhere become other bytes."""
    path = tmp_path_factory.mktemp("fuzz") / "snapshot"
    original = small_snapshot(path).read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=40))
    changed = (original[:position] + patch + original[position + len(patch) :])[: len(original)]
    path.write_bytes(changed)
    if changed == original:
        _verify(path)
    else:
        with pytest.raises(StoreError):
            _verify(path)


@pytest.mark.parametrize("factory", [FILE, MEMORY], ids=["file", "memory"])
def test_a_damaged_row_is_not_restored(factory, tmp_path, snapshot):
    _flip(snapshot, 2 * PAGE_BYTES + BLOCK_ROWS * 8 + 3, 1)
    for _ in range(2):  # the refusal gives the lock back
        with pytest.raises(
            DamagedFileError, match=f"block 1 \\(rows {BLOCK_ROWS} to {BLOCK_ROWS}\\).*check the disk"
        ):
            factory.restore(tmp_path, snapshot, schema=STATELESS, rows=BLOCK_ROWS + 1)
    assert not (tmp_path / "live").exists()


def test_a_block_that_became_a_hole_is_found(tmp_path):
    """A crash of the disk may leave zeros where data was; holes are checked without reading them."""
    path = small_snapshot(tmp_path / "snapshot")
    data = path.read_bytes()
    path.write_bytes(b"")
    os.truncate(path, len(data))
    for start, end in ((0, PAGE_BYTES), (2 * PAGE_BYTES + BLOCK_ROWS * 32, len(data))):
        with path.open("r+b") as file:
            file.seek(start)
            file.write(data[start:end])
    with pytest.raises(DamagedFileError, match="block 0"):
        _verify(path)


@pytest.mark.parametrize("part", [0, 1, 2, 3])
def test_a_snapshot_cut_at_any_length_is_refused(tmp_path, part):
    path = small_snapshot(tmp_path / "snapshot", rows=1, schema=STATELESS)
    size = path.stat().st_size
    for length in reversed(range(part * size // 4, (part + 1) * size // 4)):
        os.truncate(path, length)
        with pytest.raises(TruncatedFileError):
            Snapshot(path)


def test_a_snapshot_with_something_appended_is_refused(snapshot):
    with snapshot.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(TruncatedFileError, match="appended"):
        Snapshot(snapshot)


@pytest.mark.parametrize("content", [b"PK\x03\x04" + bytes(9000), b"\x80\x02}", b"ISOG", b"x"], ids=repr)
def test_a_file_of_another_format_is_refused(tmp_path, content):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    expected = TruncatedFileError if content == b"ISOG" else ForeignFileError
    with pytest.raises(expected, match="expected"):
        Snapshot(path)


def test_the_wrong_one_of_our_formats_is_named(tmp_path, snapshot):
    with FILE.create(tmp_path), pytest.raises(ForeignFileError, match="found a live file"):
        Snapshot(tmp_path / "live")
    with pytest.raises(ForeignFileError, match="found a snapshot"):
        StateStore.open(snapshot, FINGERPRINT)
    with pytest.raises(ForeignFileError, match="found nothing"):
        Snapshot(tmp_path / "missing")
    with pytest.raises(ForeignFileError, match="found a directory"):
        Snapshot(tmp_path)


def _rewrite_header(path, magic, version, description):
    page = struct.pack("<8sII", magic, version, len(description)) + description
    page = page.ljust(PAGE_BYTES - 4, b"\0")
    with path.open("r+b") as file:
        file.write(page + struct.pack("<I", zlib.crc32(page)))


def test_a_newer_version_is_refused_by_name(snapshot):
    _rewrite_header(snapshot, SNAPSHOT_MAGIC, 2, b"a format of the future")
    with pytest.raises(NewerVersionError, match=r"found version 2.*install"):
        Snapshot(snapshot)


GOOD = {
    "block_rows": BLOCK_ROWS,
    "columns": STATELESS.describe(),
    "index_fingerprint": "a",
    "rows": 1,
    "run": "",
    "step": 1,
}


@pytest.mark.parametrize(
    "change",
    [
        {"block_rows": 1024},
        {"rows": "many"},
        {"rows": -1},
        {"rows": True},
        {"rows": 1 << 60},
        {"step": 1.5},
        {"columns": [["visits", "<f8"], ["last_epoch", "<u4"]]},
        {"columns": [["visits", "<u4"]]},
        {"columns": "visits"},
        {"columns": 3},
        {"index_fingerprint": ""},
    ],
    ids=str,
)
def test_a_header_with_a_right_checksum_and_a_wrong_content_is_refused(snapshot, change):
    _rewrite_header(snapshot, SNAPSHOT_MAGIC, 1, json.dumps({**GOOD, **change}).encode())
    with pytest.raises(DamagedFileError, match="makes no sense"):
        Snapshot(snapshot)
    _rewrite_header(snapshot, SNAPSHOT_MAGIC, 1, json.dumps(GOOD).encode()[:-1])
    with pytest.raises(DamagedFileError, match="makes no sense"):
        Snapshot(snapshot)


def test_every_flipped_byte_of_a_live_header_is_found(tmp_path):
    with FILE.create(tmp_path):
        for position in range(PAGE_BYTES):
            _flip(tmp_path / "live", position, 1 << (position % 8))
            with pytest.raises(DamagedFileError if position >= 8 else ForeignFileError):
                StateStore.open(tmp_path / "live", FINGERPRINT)
            _flip(tmp_path / "live", position, 1 << (position % 8))
        StateStore.open(tmp_path / "live", FINGERPRINT).close()


def test_a_live_file_cut_at_any_length_is_refused(tmp_path):
    with FILE.create(tmp_path, schema=STATELESS, rows=1):
        pass
    copy = tmp_path / "copy"
    shutil.copy(tmp_path / "live", copy)
    for length in reversed(range(copy.stat().st_size)):
        os.truncate(copy, length)
        with pytest.raises(TruncatedFileError):
            StateStore.open(copy, FINGERPRINT)


def test_a_live_file_of_a_newer_version_is_refused(tmp_path):
    with FILE.create(tmp_path):
        _rewrite_header(tmp_path / "live", LIVE_MAGIC, 7, b"")
        with pytest.raises(NewerVersionError):
            StateStore.open(tmp_path / "live", FINGERPRINT)


def test_a_foreign_file_in_the_place_of_the_live_file_is_not_replaced(tmp_path):
    (tmp_path / "live").write_bytes(b"my thesis")
    with pytest.raises(ForeignFileError, match="move it away"):
        FILE.create(tmp_path)
    assert (tmp_path / "live").read_bytes() == b"my thesis"


def test_every_flipped_byte_of_a_manifest_is_found(generation):
    manifest = generation / MANIFEST
    original = manifest.read_bytes()
    for position in range(len(original)):
        for mask in (1, 0x20, 0xFF):
            changed = bytearray(original)
            changed[position] ^= mask
            manifest.write_bytes(changed)
            with pytest.raises(DamagedFileError):
                load_generation(generation)


def test_a_manifest_cut_at_any_length_is_refused(generation):
    manifest = generation / MANIFEST
    for length in reversed(range(manifest.stat().st_size)):
        os.truncate(manifest, length)
        with pytest.raises(DamagedFileError):
            load_generation(generation)


def _sign(content):
    body = b'{"content":' + json.dumps(content).encode()
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def test_manifests_of_other_formats_and_newer_versions_are_refused(generation):
    manifest = generation / MANIFEST
    content = json.loads(manifest.read_bytes())["content"]
    for change, error in (
        ({"version": 2}, NewerVersionError),
        ({"format": "zip"}, ForeignFileError),
        ({"files": 3}, DamagedFileError),
        ({"files": {"a": {}}}, DamagedFileError),
    ):
        manifest.write_bytes(_sign({**content, **change}))
        with pytest.raises(error):
            load_generation(generation)
    with pytest.raises(DamagedFileError):  # the newest is damaged, and there is no other: never start over silently
        latest(generation.parent)
    manifest.write_bytes(_sign({**content, "version": 2}))
    with pytest.raises(NewerVersionError):
        latest(generation.parent)
    manifest.unlink()
    with pytest.raises(ForeignFileError, match="never committed"):
        load_generation(generation)


@pytest.mark.parametrize("name", ["model.pt", STORE_SNAPSHOT])
def test_every_damage_of_a_payload_is_found_by_verify(generation, name):
    path = generation / name
    size = path.stat().st_size
    for position in range(0, size, 1 if size < 100 else 97):
        _flip(path, position, 0x10)
        with pytest.raises((DamagedFileError, ForeignFileError)):
            load_generation(generation).verify()
        _flip(path, position, 0x10)
    load_generation(generation).verify()
    os.truncate(path, size - 1)
    with pytest.raises(TruncatedFileError, match="by the manifest"):
        load_generation(generation)
    path.unlink()
    with pytest.raises(TruncatedFileError, match="no file"):
        load_generation(generation)


def test_a_whole_snapshot_of_another_step_does_not_pass_for_the_right_one(generation):
    """Both files are intact; only the manifest knows which one belongs here."""
    with MEMORY.create(generation, rows=3) as store:
        store.write([0], values_of(ISOGCLR, [9]), 8)
        (generation / STORE_SNAPSHOT).unlink()
        store.commit(generation / STORE_SNAPSHOT)
    with pytest.raises(DamagedFileError, match="found checksum"):
        load_generation(generation).verify()


def test_latest_passes_over_damage_with_a_warning(tmp_path, caplog):
    for step in (1, 2, 3):
        with write_generation(tmp_path, step=step) as folder:
            small_snapshot(folder / STORE_SNAPSHOT)
    newest = latest(tmp_path).path
    _flip(newest / MANIFEST, 30, 1)
    assert latest(tmp_path).step == 2
    assert "damaged generation" in caplog.text
    assert prune(tmp_path, newest=1) == [1]  # two is the newest that is whole; the damaged one is left to look at
    assert newest.exists()
    assert find_snapshot(tmp_path).parent == latest(tmp_path).path
    with write_generation(tmp_path, step=4) as folder:
        small_snapshot(folder / STORE_SNAPSHOT)
    assert latest(tmp_path).number == 4  # numbers are never used twice


def test_a_header_that_does_not_fit_is_refused():
    columns = tuple(f"column_{number:050d}" for number in range(100))
    with pytest.raises(InputError, match="shorter or fewer"):
        encode_header(LIVE_MAGIC, Header(type(ISOGCLR)(columns), 1, "a"))


def test_reading_a_snapshot_gives_all_visited_rows(snapshot):
    with Snapshot(snapshot) as opened:
        parts = list(opened.visited())
    rows = np.concatenate([first + np.flatnonzero(values["visits"]) for first, values in parts])
    numbers = np.concatenate([values["visits"] for _, values in parts])
    np.testing.assert_array_equal(rows, np.arange(BLOCK_ROWS + 1))
    np.testing.assert_array_equal(numbers, np.arange(BLOCK_ROWS + 1) + 1)
