"""`isogclr linear` from checkpoints and data on disk to tables and files, through the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isogclr.cli import main
from isogclr.evaluation.linear import LinearSettings, cached_batches, train_classifier
from isogclr.evaluation.picture_features import PicturePart, Reading, plain_features
from isogclr.models.view_checkpoints import load_backbone
from isogclr.pictures import LongTail, open_pictures
from support.picture_sets import write_cifar10, write_folders, write_shards
from support.view_checkpoints import coloured_pixels, save_view_checkpoint

LABELS = np.arange(600) % 10
QUICK = ("--cached", "--epochs", "10", "--lr", "1")


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cifar")
    write_cifar10(folder, coloured_pixels(LABELS), LABELS.tolist(), test=100)
    return folder


def save_run(folder: Path, seed: int, **facts: Any) -> Path:
    """A run of which everything is known, so that repetitions are recognised."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"kind": "unimodal", "batch_size": 128, "settings": {}}))
    return save_view_checkpoint(folder / "checkpoints" / "epoch_2.pt", weights=seed, seed=seed, **facts)


def linear(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main(["linear", *map(str, words)])
    output = capsys.readouterr()
    return code, output.out, output.err


def results(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def test_seeds_table_files_and_cache(tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [save_run(tmp_path / f"run{seed}", seed) for seed in range(2)]
    words = ("--checkpoint", *runs, "--data", cifar, "--output", tmp_path / "out", *QUICK)
    code, out, err = linear(capsys, *words)
    assert code == 0
    assert "600 training pictures of 10 classes (imbalance 1), 100 test pictures" in err
    assert out.startswith(
        "CIFAR10, linear evaluation, 100 images (the official test split has 10,000: no differences"
    )
    assert "run0/epoch_2 isogclr (2 seeds)" in out  # equal but for their seed
    assert "TaU+SimCLR (paper, table 10)" in out
    assert "minus" not in out
    first, second = results(tmp_path / "out")
    assert first["task"] == "linear"
    metrics = first["metrics"]
    assert metrics.keys() == {"acc1", "acc5", "mean_per_class_recall", "knn_acc1"}
    assert 0.5 < metrics["acc1"] <= 1  # ten colours with noise; chance is 0.1
    assert metrics["acc1"] <= metrics["acc5"] <= 1
    ours = first["isogclr"]
    assert ours["settings"]["cached"]
    assert 0 < ours["train_loss"] < np.log(10)
    assert "warning" not in err
    assert [one["train_images"] for one in ours["classes"]] == [60] * 10
    assert np.mean([one["recall"] for one in ours["classes"]]) == pytest.approx(metrics["mean_per_class_recall"])
    assert {path.name for path in (tmp_path / "out").glob("table.*")} == {"table.md", "table.csv"}

    code, again, err = linear(capsys, *words)
    assert (code, again) == (0, out)
    assert err.count("the result is there already") == 2
    assert "kNN" not in err
    code, again, err = linear(capsys, *words, "--recompute")
    assert (code, again) == (0, out)  # measured anew, the same to the last digit
    assert err.count("kNN") == 2
    code, _, err = linear(capsys, *words, "--seed", 1)
    assert "there already" not in err
    assert len(results(tmp_path / "out")) == 4
    assert second["metrics"] != metrics


def test_the_long_tail_of_the_checkpoint(tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = save_run(tmp_path / "tail", 0, imbalance=20.0, long_tail_seed=3)
    tail = LongTail.of(open_pictures(str(cifar)), 20.0, 3)
    tail.save(tmp_path / "tail" / "long_tail.json")
    words = ("--checkpoint", run, "--data", cifar, *QUICK)
    code, out, err = linear(capsys, *words, "--output", tmp_path / "lt")
    assert code == 0
    assert f"{len(tail.rows):,} training pictures of 10 classes (imbalance 20)" in err
    (found,) = results(tmp_path / "lt")
    assert found["dataset"] == "cifar10-lt20"
    assert [one["train_images"] for one in found["isogclr"]["classes"]] == list(tail.kept)
    recalls = [one["recall"] for one in found["isogclr"]["classes"]]
    for name, members in (("head", slice(0, 4)), ("middle", slice(4, 7)), ("tail", slice(7, 10))):
        assert found["metrics"][f"{name}_recall"] == pytest.approx(np.mean(recalls[members]))
    assert out.splitlines()[1].split()[-4:] == ["head", "middle", "tail", "kNN"]

    code, out, err = linear(capsys, *words, "--imbalance", 1, "--output", tmp_path / "all")
    assert "600 training pictures of 10 classes (imbalance 1)" in err
    assert "tail " not in out.splitlines()[1]

    LongTail.of(open_pictures(str(cifar)), 20.0, 4).save(tmp_path / "other.json")
    content = json.loads((tmp_path / "other.json").read_text())
    forged = LongTail(20.0, 3, tail.data, tail.classes, tail.sizes, tail.kept, tuple(content["rows"]))
    forged.save(tmp_path / "tail" / "long_tail.json")
    code, _, err = linear(capsys, *words, "--output", tmp_path / "forged")
    assert code == 1
    assert "the long tail of this data is not the one in" in err


def test_augmented_and_cached(tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cached is a classifier on the features of the plain pictures; otherwise it sees new crops in each epoch."""
    run = save_run(tmp_path / "run", 0)
    words = ("--checkpoint", run, "--data", cifar, "--epochs", 2, "--lr", 1, "--imbalance", 50)
    found = {}
    for name, flags in {"cached": ["--cached"], "augmented": []}.items():
        code, _, err = linear(capsys, *words, *flags, "--dataset", "cifar10-lt", "--output", tmp_path / name)
        assert code == 0, err
        assert "epoch 2 of 2, loss" in err
        (found[name],) = results(tmp_path / name)
        assert found[name]["dataset"] == "cifar10-lt50"
        assert found[name]["isogclr"]["settings"]["cached"] == (name == "cached")
    assert found["cached"]["metrics"]["knn_acc1"] == found["augmented"]["metrics"]["knn_acc1"]

    loaded, pictures = load_backbone(run), open_pictures(str(cifar))
    rows = LongTail.of(pictures, 50, 0).row_array
    part = PicturePart(pictures, rows, torch.from_numpy(LABELS[rows]))
    features = plain_features(loaded.backbone, part, loaded.preprocessing(), Reading(torch.device("cpu")))
    settings = LinearSettings(epochs=2, lr=1)
    losses: list[float] = []
    batches = cached_batches(features, part.labels, settings)
    train_classifier(batches, loaded.width, 10, settings, after_epoch=lambda _, loss: losses.append(loss))
    assert found["cached"]["isogclr"]["train_loss"] == losses[-1]
    assert found["augmented"]["isogclr"]["train_loss"] != losses[-1]  # not by much: a crop is the same colour


def test_folders_and_what_can_be_wrong_with_data(
    tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save_run(tmp_path / "run", 0)
    train = write_folders(tmp_path / "birds" / "train", {"crow": 6, "heron": 5, "tit": 4})
    test = write_folders(tmp_path / "birds" / "val", {"heron": 3, "tit": 3})
    words = ("--checkpoint", run, "--output", tmp_path / "out", *QUICK)
    code, out, _ = linear(capsys, *words, "--data", train, "--val-data", test)
    assert code == 0
    assert out.startswith("birds, linear evaluation, 6 images, in percent")
    (found,) = results(tmp_path / "out")
    assert [one["recall"] is None for one in found["isogclr"]["classes"]] == [True, False, False]

    def error(*more: object, expected: int = 1) -> str:
        code, _, err = linear(capsys, *words, *more)
        assert code == expected
        assert "Traceback" not in err
        return err

    assert "name one with --val-data" in error("--data", train, expected=2)
    one_class = write_folders(tmp_path / "one", {"crow": 3})
    assert "needs two classes or more" in error("--data", one_class, "--val-data", test)
    unlabelled = write_shards(tmp_path / "shards", [[0, 1, None], [1]])
    assert "1 of 4 have none" in error("--data", unlabelled, "--val-data", test)
    assert "classes that the training data has not, like class 0" in error("--data", train, "--val-data", cifar)
    assert "and CIFAR100 has 100" in error("--data", cifar, "--dataset", "cifar100")
    assert "device 'nothing' can not be used" in error("--data", cifar, "--device", "nothing")
    (test / "tit" / "001.png").write_bytes(b"no picture")
    assert "picture 001.png of" in error("--data", train, "--val-data", test, "--recompute")


def test_a_failing_checkpoint_does_not_stop_the_others(
    tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = save_run(tmp_path / "good", 0)
    broken = save_run(tmp_path / "broken", 1)
    content = torch.load(broken, weights_only=True)
    content["state_dict"]["backbone.0.0.weight"].fill_(torch.nan)
    torch.save(content, broken)
    other = tmp_path / "clip.pt"
    torch.save({"state_dict": {"a": torch.zeros(1)}, "isogclr": {"model": "RN50"}}, other)
    output = tmp_path / "out"
    code, out, err = linear(
        capsys, "--checkpoint", broken, other, good, "--data", cifar, "--output", output, *QUICK
    )
    assert code == 1
    assert f"{broken}: 600 of 600 features are not finite" in err
    assert "training.main (model RN50), which `isogclr eval` measures" in err
    assert "isogclr: 2 failed, 1 measured or cached" in err
    assert "good/epoch_2 isogclr" in out
    assert len(results(output)) == 1


def test_a_classifier_that_has_not_settled_is_told(
    tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Even when quiet: its figures say nothing about the backbone."""
    run = save_run(tmp_path / "run", 0)
    words = ("--checkpoint", run, "--data", cifar, "--output", tmp_path / "out", "--cached", "--quiet")
    code, _, err = linear(capsys, *words, "--epochs", 3, "--lr", 1e5)
    assert code == 0
    assert "warning" in err
    assert "the linear classifier has not settled: its loss is" in err
    assert "guessing has 2.30; --lr 100000 is too large for these features, try 1000" in err


def test_wrong_settings_are_code_2(tmp_path: Path, cifar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = save_run(tmp_path / "run", 0)
    words = ("--checkpoint", run, "--data", cifar, "--output", tmp_path / "out")
    code, _, err = linear(capsys, *words, "--lr", "nan", "--seed", -1)
    assert code == 2
    assert "learning rate nan" in err
    assert "seed -1" in err
    code, _, err = linear(capsys, *words, "--knn-temperature", 0)
    assert code == 2
    code, _, err = linear(capsys, *words, "--imbalance", 0.5)
    assert code == 2
    assert "--imbalance is 0.5, expected 1 or more" in err
    assert not (tmp_path / "out").exists()
