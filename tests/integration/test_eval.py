"""`isogclr eval` on data in the real formats, beside `clip_benchmark eval` and plain loops: equal metrics."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from isogclr.cli import main
from isogclr.evaluation.suites import CLASSIFICATION, RETRIEVAL, metric_names
from support.evaluation_data import (
    Pairs,
    Tiny,
    class_names,
    jpeg,
    pairs,
    save_checkpoint,
    tiny_model,
    write_classification_copy,
    write_flickr30k,
    write_mscoco,
    write_retrieval_copy,
)

FLICKR = pairs(14)
COCO = pairs(13, (5, 6, 1))  # MSCOCO has images with more than five captions
LABELS = {
    "cifar10": [n * 7 % 10 for n in range(30)],
    "cifar100": [n * 7 % 100 for n in range(25)],
    "imagenet1k": [n * 97 % 1000 for n in range(25)],
}
CLASSES = {"cifar10": 10, "cifar100": 100, "imagenet1k": 1000}
BOTH = {"flickr30k": FLICKR, "mscoco_captions": COCO}


@dataclass(frozen=True)
class World:
    """Two data roots, one of native folders and one of copies, a model, its checkpoint and its export."""

    native: Path
    copies: Path
    tiny: Tiny
    checkpoint: Path
    exported: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    base = tmp_path_factory.mktemp("world")
    native, copies = base / "native", base / "copies"
    write_flickr30k(native / "flickr30k", FLICKR)
    write_mscoco(native / "mscoco_captions", COCO)
    write_retrieval_copy(copies / "flickr30k", FLICKR)
    write_retrieval_copy(copies / "mscoco_captions", COCO)
    for name, count in CLASSES.items():
        write_classification_copy(copies / name, class_names(count), LABELS[name])
    tiny = tiny_model()
    checkpoint = save_checkpoint(base / "logs" / "run" / "checkpoints" / "epoch_1.pt", tiny.model)
    assert main(["export", str(checkpoint), str(base / "exported")]) == 0
    return World(native, copies, tiny, checkpoint, base / "exported")


def evaluate(root: Path, output: Path, *flags: object, checkpoint: Path) -> int:
    options = ["--checkpoint", checkpoint, "--data-root", root, "--output", output, "--quiet", *flags]
    return main(["eval", *map(str, options)])


def saved(folder: Path) -> dict[str, dict[str, Any]]:
    """The result files by clip_benchmark's name of the data set."""
    contents = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert len({content["dataset"] for content in contents}) == len(contents)
    return {content["dataset"]: content for content in contents}


@pytest.fixture(scope="module")
def ours(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """Metrics of every data set, native and copied, from the command."""
    found = {}
    for root, flags in ((world.native, ["--task", RETRIEVAL]), (world.copies, [])):
        output = tmp_path_factory.mktemp("ours")
        assert evaluate(root, output, *flags, checkpoint=world.checkpoint) == 0
        found |= {name: content["metrics"] for name, content in saved(output).items()}
    return found


@pytest.fixture(scope="module")
def theirs(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """The same from clip_benchmark's own command line, on the exported folder."""
    output = tmp_path_factory.mktemp("theirs")
    found = {}
    for root, names in ((world.native, BOTH), (world.copies, [f"wds/{name}" for name in (*BOTH, *CLASSES)])):
        clip_benchmark(
            *("eval", "--dataset", *names, "--dataset_root", f"{root}/{{dataset}}", "--num_workers", 0),
            *("--model", f"local-dir:{world.exported}", "--no_amp", "--recall_k", 1, 5, 10),
            *("--output", f"{output}/{root.name}-{{dataset}}.json"),
        )
    for path in output.glob("*.json"):
        content = json.loads(path.read_text())
        found[content["dataset"]] = content["metrics"]
    return found


def clip_benchmark(*arguments: object) -> None:
    """Its real command; offline, so that it can not quietly evaluate something else."""
    command = [sys.executable, "-m", "clip_benchmark.cli", *map(str, arguments)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]


@torch.no_grad()
def encode(tiny: Tiny, images: Sequence[bytes], texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """One image and one text at a time, in fp32, normalised in float64."""

    def unit(features: Tensor) -> Tensor:
        return features.double() / features.double().norm()

    image = [
        unit(tiny.model.encode_image(tiny.preprocess(Image.open(io.BytesIO(one)).convert("RGB"))[None])[0])
        for one in images
    ]
    text = [unit(tiny.model.encode_text(tiny.tokenizer([one]))[0]) for one in texts]
    return torch.stack(image), torch.stack(text)


def best(scores: Tensor, k: int) -> list[int]:
    """Places of the k largest; the margin to the next is no rounding error, or the test would be of luck."""
    values = scores.tolist()
    order = sorted(range(len(values)), key=lambda n: -values[n])
    assert k >= len(order) or values[order[k - 1]] - values[order[k]] > 1e-6
    return order[:k]


def brute_force_retrieval(tiny: Tiny, data: Pairs) -> dict[str, float]:
    owners = [number for number, (_, captions) in enumerate(data) for _ in captions]
    image, text = encode(tiny, [image for image, _ in data], [text for _, captions in data for text in captions])
    found = {}
    for k in (1, 5, 10):
        hits = [owners[n] in best(image @ text[n], k) for n in range(len(text))]
        found[f"image_retrieval_recall@{k}"] = sum(hits) / len(hits)
        hits = [any(owners[m] == n for m in best(text @ image[n], k)) for n in range(len(image))]
        found[f"text_retrieval_recall@{k}"] = sum(hits) / len(hits)
    return found


def brute_force_classification(tiny: Tiny, labels: Sequence[int], classes: int) -> dict[str, float]:
    names = class_names(classes)
    prompts = [template.format(c=name) for name in names for template in ("a photo of a {c}.", "a small {c}.")]
    image, text = encode(tiny, [jpeg(number) for number in range(len(labels))], prompts)
    means = text.reshape(classes, 2, -1).mean(dim=1)
    means = means / means.norm(dim=1, keepdim=True)
    ranked = [best(means @ one, 5) for one in image]
    found = {
        f"acc{k}": sum(label in order[:k] for label, order in zip(labels, ranked, strict=True)) / len(labels)
        for k in (1, 3, 5)
    }
    recalls = []
    for label in sorted(set(labels)):
        own = [order[0] == label for one, order in zip(labels, ranked, strict=True) if one == label]
        recalls.append(sum(own) / len(own))
    return found | {"mean_per_class_recall": sum(recalls) / len(recalls)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BOTH, *(f"wds/{name}" for name in (*BOTH, *CLASSES))])
def test_equal_to_clip_benchmark_and_to_brute_force(
    name: str, world: World, ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]]
) -> None:
    short = name.removeprefix("wds/")
    if short in BOTH:
        expected = brute_force_retrieval(world.tiny, BOTH[short])
    else:
        expected = brute_force_classification(world.tiny, LABELS[short], CLASSES[short])
    assert ours[name] == pytest.approx(expected, abs=1e-9)
    assert set(ours[name]) == set(metric_names(RETRIEVAL if short in BOTH else CLASSIFICATION))
    common = {
        metric: value for metric, value in expected.items() if metric != "acc3"
    }  # clip_benchmark has no top-3
    assert theirs[name] == pytest.approx(common, abs=1e-6)


def test_the_test_data_tell_good_from_bad(ours: dict[str, dict[str, float]]) -> None:
    """If all metrics were 0 or 1, or equal, agreement would say little."""
    found = {value for name in ("flickr30k", "mscoco_captions", "wds/cifar10") for value in ours[name].values()}
    assert len(found - {0.0, 1.0}) >= 10
    assert ours["flickr30k"] == ours["wds/flickr30k"]
    assert all(math.isfinite(value) for value in found)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A root with two data sets that take no time."""
    root = tmp_path / "data"
    write_retrieval_copy(root / "flickr30k", FLICKR)
    write_classification_copy(root / "cifar10", class_names(10), LABELS["cifar10"])
    return root


SMALL = ("--dataset", "flickr30k", "cifar10")


def test_a_repeated_call_computes_nothing(
    world: World, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    assert evaluate(small, output, *SMALL, checkpoint=world.checkpoint) == 0
    first = capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in output.glob("*.json")}
    assert len(before) == 2

    def refuse(*_: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("isogclr.models.checkpoints.load_model", refuse)
    assert evaluate(small, output, *SMALL, checkpoint=world.checkpoint) == 0
    assert capsys.readouterr().out == first
    assert {path: path.stat().st_mtime_ns for path in output.glob("*.json")} == before
    moved = tmp_path / "elsewhere" / "epoch_1.pt"  # by content, not by name
    moved.parent.mkdir()
    moved.write_bytes(world.checkpoint.read_bytes())
    assert evaluate(small, output, *SMALL, checkpoint=moved) == 0
    assert "elsewhere/epoch_1" in capsys.readouterr().out
    monkeypatch.undo()


def test_what_has_changed_is_measured_again(world: World, small: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert evaluate(small, output, *SMALL, checkpoint=world.checkpoint) == 0
    other = save_checkpoint(tmp_path / "b" / "epoch_1.pt", tiny_model(1).model)
    assert evaluate(small, output, *SMALL, checkpoint=other) == 0
    assert len(list(output.glob("*.json"))) == 4  # both are called epoch_1.pt
    (small / "cifar10" / "classnames.txt").write_text("\n".join(reversed(class_names(10))))
    assert evaluate(small, output, *SMALL, checkpoint=other) == 0
    assert len(list(output.glob("*.json"))) == 5
    damaged = next(output.glob("flickr30k_b_epoch_1_*"))  # a key may hold any letter
    damaged.write_text("{")
    assert evaluate(small, output, *SMALL, checkpoint=other) == 0
    assert json.loads(damaged.read_text())["metrics"]


def test_several_checkpoints_and_workers(
    world: World, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three seeds are one row with a deviation; another recipe is a row of its own; workers change nothing."""
    files = [
        save_checkpoint(tmp_path / f"seed{seed}" / "checkpoints" / "epoch_1.pt", tiny_model(seed).model, seed=seed)
        for seed in range(3)
    ]
    files.append(save_checkpoint(tmp_path / "clip" / "checkpoints" / "epoch_1.pt", world.tiny.model, loss="clip"))
    flags = ["--data-root", small, "--output", tmp_path / "out", *SMALL, "--workers", 2, "--batch-size", 4]
    assert main(["eval", "--checkpoint", *map(str, [*files, *flags])]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("(3 seeds)") == 2
    assert captured.out.count("clip/epoch_1 clip") == 2
    assert "100%" in captured.err  # progress bars
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "table.csv").read_text())))
    three = [row for row in rows if row["runs"] == "3" and row["metric"] == "image_retrieval_recall@10"]
    single = [
        100 * brute_force_retrieval(tiny_model(seed), FLICKR)["image_retrieval_recall@10"] for seed in range(3)
    ]
    assert float(three[0]["percent"]) == pytest.approx(sum(single) / 3, abs=1e-3)
    assert "| CLIP (paper, table 5) | pretrained | 40.98 ± 0.22 |" in (tmp_path / "out" / "table.md").read_text()


def test_clip_benchmark_build_reads_the_results(world: World, small: Path, tmp_path: Path) -> None:
    from clip_benchmark.cli import main_build  # noqa: PLC0415 (its imports take seconds)

    assert evaluate(small, tmp_path / "out", *SMALL, checkpoint=world.checkpoint) == 0
    files = [str(path) for path in (tmp_path / "out").glob("*.json")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves files open
        main_build(argparse.Namespace(files=files, output=str(tmp_path / "all.csv")))
    rows = {row["dataset"]: row for row in csv.DictReader(io.StringIO((tmp_path / "all.csv").read_text()))}
    assert set(rows) == {"wds/flickr30k", "wds/cifar10"}
    assert float(rows["wds/cifar10"]["acc3"]) >= float(rows["wds/cifar10"]["acc1"])
    assert str(world.checkpoint) in rows["wds/flickr30k"]["model_fullname"]


def test_the_others_still_run(
    world: World, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data sets that are missing, damaged or half there are named, the whole ones measured; the code is 1."""
    write_flickr30k(small / "wds" / "unused", pairs(1))
    write_mscoco(small / "mscoco_captions", COCO)
    (small / "mscoco_captions" / "coco_test_karpathy.json").write_text("")
    write_classification_copy(small / "cifar100", class_names(99), [0])
    assert evaluate(small, tmp_path / "out", checkpoint=world.checkpoint) == 1
    captured = capsys.readouterr()
    assert "mscoco_captions: " in captured.err
    assert "coco_test_karpathy.json is empty, as an interrupted download leaves it" in captured.err
    assert "lists 99 classes, 100 were expected" in captured.err
    assert f"imagenet1k: not found; expected {small}/imagenet1k/val" in captured.err
    assert "3 failed, 2 measured" in captured.err
    assert set(saved(tmp_path / "out")) == {"wds/flickr30k", "wds/cifar10"}
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("form", ["native", "copy"])
@pytest.mark.parametrize("damage", ["truncated", "garbage"])
def test_a_corrupt_image_is_named(
    world: World, tmp_path: Path, form: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = list(FLICKR)
    data[9] = (data[9][0][:-300] if damage == "truncated" else b"GIF, or is it?", data[9][1])
    if form == "native":
        write_flickr30k(tmp_path / "data" / "flickr30k", data)
    else:
        write_retrieval_copy(tmp_path / "data" / "flickr30k", data)
    flags = ("--dataset", "flickr30k", "--workers", "1" if (form, damage) == ("copy", "truncated") else "0")
    assert evaluate(tmp_path / "data", tmp_path / "out", *flags, checkpoint=world.checkpoint) == 1
    error = capsys.readouterr().err
    assert ("1009.jpg can not be decoded" if form == "native" else "s0000009.jpg in") in error
    assert not list((tmp_path / "out").glob("*.json"))


def test_labels_beyond_the_class_list(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_classification_copy(tmp_path / "data" / "birds", class_names(6), [0, 5, 6])
    assert evaluate(tmp_path / "data", tmp_path / "out", "--dataset", "birds", checkpoint=world.checkpoint) == 1
    assert "birds: a label is 6, but 6 classes are listed" in capsys.readouterr().err


def test_a_copy_with_an_image_without_captions(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = pairs(12)
    data[4] = (data[4][0], [])
    write_retrieval_copy(tmp_path / "data" / "flickr30k", data)
    assert evaluate(tmp_path / "data", tmp_path / "out", "--dataset", "flickr30k", checkpoint=world.checkpoint) == 1
    assert "image 4 (from 0) has no caption" in capsys.readouterr().err


def test_a_diverged_model_has_no_score(
    world: World, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tiny_model().model
    with torch.no_grad():
        broken.text_projection[3, 3] = math.nan
    path = save_checkpoint(tmp_path / "nan" / "epoch_1.pt", broken)
    assert evaluate(small, tmp_path / "out", *SMALL, checkpoint=path) == 1
    captured = capsys.readouterr()
    assert captured.err.count("text features are not finite") == 2
    assert not list((tmp_path / "out").glob("*"))
    assert not captured.out


def test_one_bad_checkpoint_among_good_ones(
    world: World, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "epoch_9.pt").write_bytes(b"not a checkpoint")
    files = [str(tmp_path / "epoch_9.pt"), str(tmp_path / "gone.pt"), str(world.checkpoint)]
    flags = ["--data-root", str(small), "--output", str(tmp_path / "out"), *SMALL, "--quiet"]
    assert main(["eval", "--checkpoint", *files, *flags]) == 1
    captured = capsys.readouterr()
    assert "epoch_9.pt can not be read as a checkpoint" in captured.err
    assert "gone.pt is no file" in captured.err
    assert len(saved(tmp_path / "out")) == 2


def test_download_says_what_failed(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no network here, or a proxy that goes nowhere: nothing half-fetched stays behind."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    flags = ("--dataset", "cifar10", "mscoco_captions", "--download")
    (tmp_path / "data" / "mscoco_captions" / "val2014").mkdir(parents=True)
    assert evaluate(tmp_path / "data", tmp_path / "out", *flags, checkpoint=world.checkpoint) == 1
    error = capsys.readouterr().err
    assert "cifar10: download into" in error
    assert "mscoco_captions: download into" in error
    assert not (tmp_path / "data" / "mscoco_captions" / "coco_test_karpathy.json").exists()


def test_bad_arguments(world: World, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for device in ("cuda:99", "abacus"):
        assert evaluate(small, tmp_path / "out", *SMALL, "--device", device, checkpoint=world.checkpoint) == 1
        assert f"device '{device}' can not be used here" in capsys.readouterr().err
    assert evaluate(tmp_path, tmp_path / "out", "--suite", "none", checkpoint=world.checkpoint) == 1
    assert "there is no suite 'none'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        evaluate(tmp_path, tmp_path / "out", "--batch-size", "0", checkpoint=world.checkpoint)
