"""The data set inside the package: what it holds, and that open_clip's reader and the index read it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import tarfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import webdataset
from PIL import Image

from isogclr import demo_data
from isogclr.shard_index.build import build_index
from isogclr.shard_index.index import ShardIndex
from isogclr.shard_index.patterns import expand_sources
from support.shard_writing import open_clip_samples

MAXIMUM_BYTES = 8_000_000
PERMISSIVE = {"Apache-2.0", "MIT"}
Sample = dict[str, bytes]


def read_side(pattern: str) -> dict[str, Sample]:
    samples: dict[str, Sample] = {}
    for shard in expand_sources(pattern):
        with tarfile.open(shard) as archive:
            for member in archive:
                key, _, kind = member.name.partition(".")
                stream = archive.extractfile(member)
                assert stream is not None
                assert kind not in samples.setdefault(key, {}), f"{member.name} is there twice"
                samples[key][kind] = stream.read()
    return samples


@pytest.fixture(scope="module")
def train() -> dict[str, Sample]:
    return read_side(demo_data.TRAIN_DATA)


@pytest.fixture(scope="module")
def test() -> dict[str, Sample]:
    return read_side(demo_data.TEST_DATA)


def style(sample: Sample) -> str:
    return str(json.loads(sample["json"])["style"])


def pixels(sample: Sample) -> bytes:
    with Image.open(io.BytesIO(sample["webp"])) as image:
        assert (image.mode, image.size) == ("RGB", (48, 48))
        return hashlib.sha256(image.tobytes()).digest()


def test_counts_are_those_of_the_manifest(train: dict[str, Sample], test: dict[str, Sample]) -> None:
    manifest = demo_data.manifest()
    assert len(train) == demo_data.TRAIN_SAMPLES == manifest["train"]["samples"]
    assert len(test) == demo_data.TEST_SAMPLES == manifest["test"]["samples"]
    for name, entry in manifest["styles"].items():
        assert sum(style(sample) == name for sample in (*train.values(), *test.values())) == entry["samples"]


def test_training_shards_are_of_one_size() -> None:
    sizes = json.loads((demo_data.FOLDER / "sizes.json").read_text(encoding="utf-8"))
    assert {sizes[f"train-{number:03d}.tar"] for number in range(8)} == {demo_data.TRAIN_SAMPLES // 8}
    assert sum(sizes.values()) == demo_data.TRAIN_SAMPLES + demo_data.TEST_SAMPLES


def test_bytes_are_those_that_the_script_made() -> None:
    for shard in demo_data.manifest()["shards"]:
        assert hashlib.sha256((demo_data.FOLDER / shard["file"]).read_bytes()).hexdigest() == shard["sha256"]


def test_it_is_small() -> None:
    assert sum(path.stat().st_size for path in demo_data.FOLDER.rglob("*") if path.is_file()) <= MAXIMUM_BYTES


def test_licences_are_permissive_and_their_texts_are_there(train: dict[str, Sample]) -> None:
    notice = (demo_data.FOLDER / "NOTICE.md").read_text(encoding="utf-8")
    for name, entry in demo_data.manifest()["styles"].items():
        assert entry["license"] in PERMISSIVE
        assert f"| {name} |" in notice
        assert entry["origin"] in notice or name == "noto-v1"
    texts = {demo_data.FOLDER / name for name in re.findall(r"LICENSES/[\w.-]+\.txt", notice)}
    assert texts == set((demo_data.FOLDER / "LICENSES").iterdir())
    for text in texts:
        assert len(text.read_text(encoding="utf-8")) > 900
    assert {json.loads(sample["json"])["license"] for sample in train.values()} <= PERMISSIVE


def test_a_style_is_on_one_side_only(train: dict[str, Sample], test: dict[str, Sample]) -> None:
    assert {style(sample) for sample in train.values()} == {"noto", "noto-v1", "fxemoji"}
    assert {style(sample) for sample in test.values()} == {"fluent-emoji-flat"}
    assert not train.keys() & test.keys()


def test_every_picture_decodes_and_is_there_once(train: dict[str, Sample], test: dict[str, Sample]) -> None:
    found = [pixels(sample) for sample in (*train.values(), *test.values())]
    assert len(set(found)) == len(found)


def test_captions(train: dict[str, Sample], test: dict[str, Sample]) -> None:
    for key, sample in {**train, **test}.items():
        caption = sample["txt"].decode()
        assert caption == caption.strip() != "", key
        assert caption.startswith(json.loads(sample["json"])["name"]), key
        assert not re.search(r"skin[ -]tone|medium-dark", caption), key
    assert len({sample["txt"] for sample in test.values()}) == len(test)


def test_the_tail_is_long(train: dict[str, Sample]) -> None:
    words: dict[str, int] = {}
    for sample in train.values():
        for word in set(re.findall(r"\w+", sample["txt"].decode().lower())):
            words[word] = words.get(word, 0) + 1
    assert max(words.values()) > 300
    assert sum(count == 1 for count in words.values()) > 900


def test_open_clip_reads_every_sample(train: dict[str, Sample]) -> None:
    read = open_clip_samples(expand_sources(demo_data.TRAIN_DATA))
    assert sorted(key for _, key in read) == sorted(train)


def test_open_clip_decodes_and_counts_it() -> None:
    from open_clip_train.data import get_dataset_size  # noqa: PLC0415 (takes seconds)

    with contextlib.ExitStack() as stack:
        shards = expand_sources(demo_data.TEST_DATA)
        streams = [{"url": shard, "stream": stack.enter_context(Path(shard).open("rb"))} for shard in shards]
        read = list(decoded(streams))
    assert len(read) == demo_data.TEST_SAMPLES
    assert {(image.mode, image.size, type(text)) for image, text in read} == {("RGB", (48, 48), str)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # open_clip does not close sizes.json
        assert get_dataset_size(demo_data.TRAIN_DATA) == (demo_data.TRAIN_SAMPLES, 8)


def decoded(streams: list[dict[str, Any]]) -> webdataset.DataPipeline:
    """The later stages of open_clip's pipeline."""
    return webdataset.DataPipeline(
        lambda: iter(streams),
        webdataset.tariterators.tar_file_expander,
        webdataset.tariterators.group_by_keys,
        webdataset.decode("pilrgb"),
        webdataset.rename(image="jpg;png;jpeg;webp", text="txt"),
        webdataset.to_tuple("image", "text"),
    )


def test_the_index_gives_every_sample_a_row(tmp_path: Path, train: dict[str, Sample]) -> None:
    build_index(demo_data.TRAIN_DATA, str(tmp_path / "index"), workers=1)
    index = ShardIndex.load(str(tmp_path / "index"))
    assert index.number_of_rows == demo_data.TRAIN_SAMPLES
    assert sorted(location.key for location in index.locate(range(index.number_of_rows))) == sorted(train)
