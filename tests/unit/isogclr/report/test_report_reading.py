"""Samples read back from shards, pictures decoded with care, texts made safe."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from isogclr.csv_table import CsvColumns
from isogclr.report.samples import SampleReader, Source
from isogclr.report.thumbnails import decode, thumbnail
from isogclr.report.wording import clean, number, share
from isogclr.shard_index import ShardIndex
from support.shard_writing import write_shard

COLUMNS = CsvColumns()


def picture(mode: str = "RGB", size: tuple[int, int] = (30, 20), kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, format=kind)
    return buffer.getvalue()


def build(folder: Path) -> ShardIndex:
    for shard in range(3):
        members = []
        for sample in range(4):
            key = f"deep/er/{shard}-{sample}"
            members += [(f"{key}.PNG", picture()), (f"{key}.txt", f"caption {shard} {sample}".encode())]
        members += [("no-image.txt", b"alone"), ("no-text.jpg", picture(kind="JPEG")), (b"odd-\xff.txt", b"\xff")]
        write_shard(folder / "data" / f"{shard}.tar", members)
    return ShardIndex.build(str(folder / "data" / "{0..2}.tar"), folder / "index", workers=1)


def read_all(reader: SampleReader) -> dict[int, Source]:
    return {source.row: source for source in reader.read(np.arange(reader.index.number_of_rows))}


def test_every_row_gets_its_own_sample(tmp_path: Path) -> None:
    index = build(tmp_path)
    found = read_all(SampleReader(index, None, COLUMNS))
    assert len(found) == index.number_of_rows == 21
    for row, (shard, key) in enumerate(index.locate(range(21))):
        source = found[row]
        assert (source.shard, source.key) == (shard, key)
        if key.startswith("deep"):
            assert source.caption == f"caption {key.removeprefix('deep/er/').replace('-', ' ')}"
            assert source.image is not None
        elif key == "no-image":
            assert (source.image, source.problem) == (None, "the sample has no image")
        elif key == "no-text":
            assert (source.caption, source.problem) == (None, "the sample has no caption")
        else:
            assert source.caption == "\N{REPLACEMENT CHARACTER}"


def test_shards_that_moved(tmp_path: Path) -> None:
    index = build(tmp_path)
    shutil.move(tmp_path / "data", tmp_path / "elsewhere")
    lost = SampleReader(index, None, COLUMNS)
    assert all(source.image is None and "No such file" in source.problem for source in read_all(lost).values())
    assert len(lost.problems) == 3
    moved = [str(tmp_path / "elsewhere" / f"{shard}.tar") for shard in range(3)]
    found = read_all(SampleReader(index, moved, COLUMNS))
    assert sum(source.caption is not None for source in found.values()) == 18


def test_a_shard_that_is_cut_off(tmp_path: Path) -> None:
    index = build(tmp_path)
    shard = tmp_path / "data" / "1.tar"
    shard.write_bytes(shard.read_bytes()[:1800])
    reader = SampleReader(index, None, COLUMNS)
    found = read_all(reader)
    assert len(found) == 21
    assert sum(source.caption is not None for source in found.values()) == 13
    assert list(reader.problems) == ["1.tar"]


def test_csv_data(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture())
    lines = ["filepath\ttitle", f"{tmp_path}/a.png\tfirst", f"{tmp_path}/missing.png\tsecond"]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    index = ShardIndex.build(str(tmp_path / "data.csv"), tmp_path / "index", workers=1)
    first, second = read_all(SampleReader(index, None, COLUMNS)).values()
    assert (first.caption, first.image is not None) == ("first", True)
    assert (second.caption, second.image, second.problem) == ("second", None, "the sample has no image")


def test_some_shards_are_whole_intervals(tmp_path: Path) -> None:
    reader = SampleReader(build(tmp_path), None, COLUMNS)
    assert reader.some_shards(3) is None
    found = reader.some_shards(1)
    assert found is not None
    first, after = found
    assert (after - first).tolist() == [7]


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "1", "I;16"])
def test_pictures_of_any_mode(mode: str) -> None:
    assert decode(picture(mode)).mode == "RGB"


def test_transparency_becomes_white() -> None:
    assert decode(picture("RGBA")).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize("data", [b"", b"nonsense", picture()[:45], b"<svg xmlns='http://www.w3.org/2000/svg'/>"])
def test_what_is_no_picture(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        decode(data)


def test_too_large_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("isogclr.report.thumbnails._MAXIMUM_PIXELS", 100)
    with pytest.raises(ValueError, match="30 × 20 pixels are too many"):
        decode(picture())


def test_thumbnails_are_small_and_new() -> None:
    found = thumbnail(decode(picture(size=(400, 100))))
    assert (found.width, found.height) == (72, 18)
    assert found.address.startswith("data:image/webp;base64,")
    assert thumbnail(decode(picture())).width == 30


def test_texts_and_numbers() -> None:
    assert clean("a\x00b\x1b[31m\ud800é🐝\n") == "a\ufffdb\ufffd[31m\ufffd\ufffd\ufffdé🐝\n"
    assert (number(0.04), number(1234567), number(1234.5), number(None), number(float("nan"))) == (
        "0.0400",
        "1,234,567",
        "1,234",
        "–",
        "–",
    )
    assert (share(0.0295), share(0.0), share(1.0)) == ("2.95 %", "0 %", "100 %")
    assert (share(1.0, 2), share(0.996, 2), share(0.99, 2), share(0.055, 2)) == ("100 %", "100 %", "99 %", "5.5 %")
