"""What is on disk is looked at before anything runs, and what is wrong is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from isogclr.errors import EvaluationError, InputError
from isogclr.evaluation.data_folders import locate
from isogclr.evaluation.suites import CLASSIFICATION, DATASETS, RETRIEVAL, Dataset, choose
from support.evaluation_data import (
    class_names,
    pairs,
    write_classification_copy,
    write_flickr30k,
    write_mscoco,
    write_retrieval_copy,
)

FLICKR, COCO, CIFAR10 = DATASETS["flickr30k"], DATASETS["mscoco_captions"], DATASETS["cifar10"]


def test_native_folders(tmp_path: Path) -> None:
    write_flickr30k(tmp_path / "flickr30k", pairs(3))
    write_mscoco(tmp_path / "mscoco_captions", pairs(4))
    flickr, coco = locate(FLICKR, tmp_path), locate(COCO, tmp_path)
    assert (flickr.benchmark_name, flickr.task, flickr.images, flickr.shards) == ("flickr30k", RETRIEVAL, 3, 0)
    assert (coco.benchmark_name, coco.images) == ("mscoco_captions", 4)
    assert not flickr.comparable  # the official split has 1,000 images


@pytest.mark.parametrize("where", ["flickr30k", "wds_flickr30k", "wds/flickr30k"])
def test_webdataset_copies(tmp_path: Path, where: str) -> None:
    write_retrieval_copy(tmp_path / where, pairs(5), shards=2)
    found = locate(FLICKR, tmp_path)
    assert (found.benchmark_name, found.folder, found.images, found.shards) == (
        "wds/flickr30k",
        tmp_path / where,
        5,
        2,
    )


def test_any_copy_can_be_measured_by_name(tmp_path: Path) -> None:
    write_retrieval_copy(tmp_path / "emoji", pairs(5), shards=1)
    write_classification_copy(tmp_path / "birds", class_names(3), [0, 1, 2], shards=1)
    assert locate(Dataset("emoji", "emoji"), tmp_path).task == RETRIEVAL
    assert locate(Dataset("birds", "birds"), tmp_path).task == CLASSIFICATION


def test_a_broken_native_folder_gives_way_to_a_whole_copy(tmp_path: Path) -> None:
    write_flickr30k(tmp_path / "flickr30k", pairs(3))
    (tmp_path / "flickr30k" / "1001.jpg").unlink()
    write_retrieval_copy(tmp_path / "wds_flickr30k", pairs(5))
    assert locate(FLICKR, tmp_path).images == 5


@pytest.mark.parametrize("dataset", DATASETS.values(), ids=str)
def test_nothing_there(tmp_path: Path, dataset: Dataset) -> None:
    with pytest.raises(
        EvaluationError, match=f"{dataset.name}: not found; expected {tmp_path}/{dataset.name}"
    ) as error:
        locate(dataset, tmp_path)
    assert "test/nshards.txt" in str(error.value)
    assert not list(tmp_path.iterdir())  # and nothing was fetched or created


def flickr_problems() -> dict[str, tuple[Callable[[Path], object], str]]:
    def annotations(text: str) -> Callable[[Path], object]:
        return lambda folder: (folder / "flickr30k_test_karpathy.txt").write_text(text)

    return {
        "no annotations": (
            lambda folder: (folder / "flickr30k_test_karpathy.txt").unlink(),
            "flickr30k_test_karpathy.txt is missing",
        ),
        "empty annotations": (annotations(""), "is empty, as an interrupted download leaves it"),
        "header only": (annotations("image,caption\n"), "holds no captions"),
        "no header": (annotations("1000.jpg,a cat\n1001.jpg,a dog\n"), "begins with a caption"),
        "no caption": (annotations("image,caption\n1000.jpg,\n"), "line 2: '1000.jpg,' is not"),
        "cut off": (annotations("image,caption\n1000.jpg,a cat\n100"), "line 3: '100' is not"),
        "two images in a line": (annotations("image,caption\n1.jpg,a 2.jpg,b\n"), "line 2"),
        "missing image": (
            lambda folder: [(folder / f"100{n}.jpg").unlink() for n in range(4)],
            r"4 of the 5 images .* are missing in .*: 1000.jpg, 1001.jpg, 1002.jpg, … \(4 in all\)",
        ),
        "empty image": (lambda folder: (folder / "1001.jpg").write_bytes(b""), "are empty files: 1001.jpg"),
        "binary": (lambda folder: (folder / "flickr30k_test_karpathy.txt").write_bytes(b"\xff\xfe"), "no UTF-8"),
    }


@pytest.mark.parametrize("problem", flickr_problems())
def test_flickr30k_problems(tmp_path: Path, problem: str) -> None:
    breaks, message = flickr_problems()[problem]
    write_flickr30k(tmp_path / "flickr30k", pairs(5))
    breaks(tmp_path / "flickr30k")
    with pytest.raises(EvaluationError, match=message):
        locate(FLICKR, tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ('{"images": [', "is not in COCO's format"),
        ("[1, 2]", "is not in COCO's format"),
        ('{"images": [], "annotations": []}', "lists no images"),
        ('{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": []}', "no caption for 1 images: a.jpg"),
        (
            '{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 2, "caption": "x"}]}',
            "captions of 1 images that it does not list: 2",
        ),
        (
            '{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "x"}]}',
            "1 of the 1 images .* are missing in .*val2014: a.jpg",
        ),
    ],
)
def test_mscoco_problems(tmp_path: Path, content: str, message: str) -> None:
    folder = write_mscoco(tmp_path / "mscoco_captions", pairs(2))
    (folder / "coco_test_karpathy.json").write_text(content)
    with pytest.raises(EvaluationError, match=message):
        locate(COCO, tmp_path)


def copy_problems() -> dict[str, tuple[Callable[[Path], object], str]]:
    def write(name: str, text: str) -> Callable[[Path], object]:
        return lambda folder: (folder / name).write_text(text)

    return {
        "a shard is missing": (lambda folder: (folder / "test" / "1.tar").unlink(), "test/1.tar is missing"),
        "a shard is cut off": (
            lambda folder: (folder / "test" / "1.tar").write_bytes((folder / "test" / "1.tar").read_bytes()[:1700]),
            "shard .*1.tar: ",
        ),
        "a shard is empty": (write("test/1.tar", ""), "1.tar"),
        "no number": (lambda folder: (folder / "test" / "nshards.txt").unlink(), "nshards.txt is missing"),
        "not a number": (write("test/nshards.txt", "two"), "holds 'two', the number of shards was expected"),
        "no classes": (lambda folder: (folder / "classnames.txt").unlink(), "classnames.txt is missing"),
        "too few classes": (write("classnames.txt", "a\nb\n"), "lists 2 classes, 10 were expected"),
        "a blank class": (write("classnames.txt", "a\n\nb\n"), "line 2 is empty"),
        "no prompts": (
            lambda folder: (folder / "zeroshot_classification_templates.txt").unlink(),
            "zeroshot_classification_templates.txt is missing",
        ),
        "a prompt without place": (
            write("zeroshot_classification_templates.txt", "a photo of a {}.\n"),
            r"every line needs \{c\}",
        ),
        "wrong kind": (write("dataset_type.txt", "retrieval"), "is a copy for zeroshot_retrieval"),
        "unknown kind": (write("dataset_type.txt", "multilabel"), "holds 'multilabel'"),
    }


@pytest.mark.parametrize("problem", copy_problems())
def test_problems_of_copies(tmp_path: Path, problem: str) -> None:
    breaks, message = copy_problems()[problem]
    folder = write_classification_copy(tmp_path / "cifar10", class_names(10), range(10))
    breaks(folder)
    with pytest.raises(EvaluationError, match=message):
        locate(CIFAR10, tmp_path)


def test_native_cifar_lists_every_missing_file(tmp_path: Path) -> None:
    (tmp_path / "cifar10" / "cifar-10-batches-py").mkdir(parents=True)
    (tmp_path / "cifar10" / "cifar-10-batches-py" / "test_batch").write_bytes(b"x")
    with pytest.raises(EvaluationError, match=r"^cifar10: .* is missing; ") as error:
        locate(CIFAR10, tmp_path)
    assert len(str(error.value).split("; ")) == str(error.value).count(" is missing") == 6
    assert "test_batch" not in str(error.value)


def test_native_imagenet_needs_all_classes(tmp_path: Path) -> None:
    from clip_benchmark.datasets.builder import all_imagenet_wordnet_ids  # noqa: PLC0415

    validation = tmp_path / "imagenet1k" / "val"
    for wordnet in all_imagenet_wordnet_ids:
        (validation / wordnet).mkdir(parents=True)
        (validation / wordnet / "a.JPEG").write_bytes(b"x")
    found = locate(DATASETS["imagenet1k"], tmp_path)
    assert (found.benchmark_name, found.images) == ("imagenet1k-unverified", 1000)
    (validation / "n99999999").mkdir()
    with pytest.raises(EvaluationError, match="shift all labels behind them: n99999999"):
        locate(DATASETS["imagenet1k"], tmp_path)
    (validation / "n01440764" / "a.JPEG").unlink()
    with pytest.raises(EvaluationError, match="1 of 1,000 classes have no images: n01440764"):
        locate(DATASETS["imagenet1k"], tmp_path)


def test_the_stamp_changes_with_the_data(tmp_path: Path) -> None:
    folder = write_mscoco(tmp_path / "mscoco_captions", pairs(2))
    before = locate(COCO, tmp_path).stamp
    assert locate(COCO, tmp_path).stamp == before
    content = json.loads((folder / "coco_test_karpathy.json").read_text())
    content["annotations"][0]["caption"] += "!"
    (folder / "coco_test_karpathy.json").write_text(json.dumps(content))
    assert locate(COCO, tmp_path).stamp != before


def test_choice() -> None:
    assert [dataset.name for dataset in choose("paper")] == list(DATASETS)
    assert [dataset.name for dataset in choose("paper", task=RETRIEVAL)] == ["flickr30k", "mscoco_captions"]
    assert [dataset.name for dataset in choose("paper", ["wds/cifar10", "emoji", "cifar10"])] == [
        "cifar10",
        "emoji",
    ]
    with pytest.raises(InputError, match="there is no suite 'papers'; choose from paper"):
        choose("papers")
    with pytest.raises(InputError, match="none of cifar10 is measured by zeroshot_retrieval"):
        choose("paper", ["cifar10"], RETRIEVAL)
    with pytest.raises(InputError, match="there is no task"):
        choose("paper", task="captioning")
