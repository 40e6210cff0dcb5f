"""The published figures, and the tables that put ours beside them."""

from __future__ import annotations

import csv
import io
import re
import statistics
from typing import Any

import pytest

from isogclr.evaluation.paper import paper_rows
from isogclr.evaluation.result_tables import as_csv, as_markdown, as_text, tables_of
from isogclr.evaluation.results import Identity, Result, identity_of
from isogclr.evaluation.suites import CLASSIFICATION, DATASETS, LINEAR, LINEAR_DATASETS, RETRIEVAL, metric_names

# The paper's table 2, typed in a second time: first columns of tables 5, 6 and 7.
TABLE_2 = {
    "CLIP": "40.98 50.90 21.32 26.98 60.63 30.70 36.27",
    "CyCLIP": "42.46 51.70 21.58 26.18 57.19 33.11 36.75",
    "SogCLR": "43.32 57.18 22.43 30.08 61.09 33.26 37.46",
    "iSogCLR": "44.36 60.20 23.27 32.72 58.91 33.81 40.72",
    "TempNet": "46.17 62.51 24.83 34.50 – – 42.28",
}
COLUMNS = [
    *[
        (name, f"{way}_retrieval_recall@1")
        for name in ("flickr30k", "mscoco_captions")
        for way in ("image", "text")
    ],
    *[(name, "acc1") for name in ("cifar10", "cifar100", "imagenet1k")],
]


@pytest.mark.parametrize("method", TABLE_2)
def test_published_figures(method: str) -> None:
    for (dataset, metric), expected in zip(COLUMNS, TABLE_2[method].split(), strict=True):
        rows = [row for row in paper_rows(dataset) if row.method == method]
        if expected == "–":
            assert not rows
        else:
            assert f"{rows[0].figures[metric].value:.2f}" == expected


def test_published_tables_are_complete() -> None:
    for name, dataset in DATASETS.items():
        assert dataset.task is not None
        expected = set(metric_names(dataset.task)) - {"mean_per_class_recall"}
        rows = [row for row in paper_rows(name) if row.method != "TempNet"]
        assert [row.method for row in rows] == ["CLIP", "CyCLIP", "SogCLR", "iSogCLR"]
        for row in rows:
            assert row.figures.keys() == expected
            assert row.pretrained
            values = [row.figures[metric].value for metric in metric_names(dataset.task)[:3]]
            assert values == sorted(values)  # recall and accuracy rise with k
            assert {figure.table for figure in row.figures.values()} <= {5, 6, 7}
            assert all(0.08 <= (figure.deviation or 0) <= 0.26 for figure in row.figures.values())


RUN = {"batch_size": 512, "settings": {"optimizer": {"lr": 2e-4}}, "name": "anything", "versions": {}}


def result(
    value: float,
    *,
    seed: int = 0,
    run: str = "run",
    comparable: bool = True,
    run_config: dict[str, Any] | None = RUN,
    **identity: object,
) -> Result:
    details = {"loss": "isogclr", "loss_config": {"rho": 6.0}, "pretrained": False, "seed": seed, "epoch": 30}
    return Result(
        dataset="flickr30k",
        task=RETRIEVAL,
        checkpoint=f"/logs/{run}{seed}/checkpoints/epoch_30.pt",
        identity=identity_of("RN50", details | identity, 30, run_config),
        images=1000 if comparable else 12,
        comparable=comparable,
        metrics=dict.fromkeys(metric_names(RETRIEVAL), value),
    )


def test_differences_to_every_published_row() -> None:
    text = as_text(tables_of([result(0.5)]))
    lines = {line.split("  ")[0].strip() or line.strip(): line for line in text.splitlines()}
    assert re.findall(r"[\d.]+", lines["run0/epoch_30 isogclr"].split("from scratch")[1]) == ["50.00"] * 6
    minus = text.split("minus CLIP")[1].splitlines()[0].split()
    assert minus[:2] == ["+9.02", "−19.60"]  # 50 − 40.98, 50 − 69.60
    assert text.count("minus") == 5
    assert text.split("minus TempNet")[1].split() == ["+3.83", "−12.51"]  # it publishes two figures here


def test_other_splits_are_not_compared() -> None:
    text = as_text(tables_of([result(0.5, comparable=False)]))
    assert "12 images (the official test split has 1,000: no differences" in text
    assert "minus" not in text
    assert "40.98" in text


def test_seeds_of_one_recipe_become_mean_and_deviation() -> None:
    values = (0.44, 0.45, 0.49)
    table = tables_of([result(value, seed=seed) for seed, value in enumerate(values)])[0]
    assert [row.runs for row in table.ours] == [3]
    mean, deviation = table.ours[0].values["image_retrieval_recall@5"]
    assert mean == pytest.approx(46.0)
    assert deviation == pytest.approx(statistics.stdev([44.0, 45.0, 49.0]))
    assert "46.00 ± 2.65" in as_text([table])
    assert "(3 seeds)" in as_text([table])


def test_what_is_no_repetition_stands_alone() -> None:
    sweep = [result(0.1), result(0.2, seed=1, loss_config={"rho": 7.0}), result(0.3, seed=2, epoch=29)]
    again = [result(0.4, seed=0, run="copy")]
    assert [row.runs for row in tables_of(sweep + again)[0].ours] == [1, 1, 1, 1]
    assert [row.runs for row in tables_of(sweep + again, all_are_seeds=True)[0].ours] == [4]
    faster = {"batch_size": 512, "settings": {"optimizer": {"lr": 1e-3}}}
    rates = [result(0.1), result(0.2, seed=1, run_config=faster), result(0.3, seed=2, run_config=None)]
    assert [row.runs for row in tables_of(rates)[0].ours] == [1, 1, 1]
    unknown = [Result("flickr30k", RETRIEVAL, f"{n}.pt", Identity("RN50"), 1000, True, {"acc1": 1.0}) for n in "ab"]
    assert [row.runs for row in tables_of(unknown)[0].ours] == [1, 1]


@pytest.mark.parametrize(
    ("pretrained", "shown"), [(True, "pretrained"), (False, "from scratch"), (None, "not known")]
)
def test_rows_say_whether_encoders_were_pretrained(pretrained: bool | None, shown: str) -> None:
    lines = as_text(tables_of([result(0.5, pretrained=pretrained)])).splitlines()
    assert shown in next(line for line in lines if line.startswith("run0"))
    assert all("pretrained" in line for line in lines if "(paper" in line)


def test_markdown_and_csv() -> None:
    other = Result("cifar10", CLASSIFICATION, "x.pt", Identity("RN50"), 10_000, True, {"acc1": 0.6, "acc3": 0.9})
    tables = tables_of([result(0.5), other])
    markdown = as_markdown(tables)
    blocks = [block.splitlines() for block in markdown.split("## ")[1:]]
    assert len(blocks) == 2
    for block in blocks:
        rows = [line for line in block if line.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1
    assert "Qiu et al." in markdown
    rows = list(csv.DictReader(io.StringIO(as_csv(tables))))
    ours = [row for row in rows if row["source"] == "ours" and row["dataset"] == "cifar10"]
    assert [(row["metric"], row["percent"]) for row in ours] == [("acc1", "60.0000"), ("acc3", "90.0000")]
    assert ours[0]["minus iSogCLR"] == "1.0900"
    assert ours[0]["minus TempNet"] == ""
    published = [row for row in rows if row["source"] == "table 5" and row["row"] == "iSogCLR"]
    assert [row["percent"] for row in published] == ["44.36", "72.64", "80.92", "60.2", "84.6", "90.5"]


# The paper's tables 3 and 4, top-1 at 400 and 800 epochs (ImageNet100 and iNaturalist: 200 and 400), a second time.
LINEAR_TABLES = {
    "SimCLR": "88.74 89.64 62.34 64.78 78.84 79.96 77.09 78.36 49.33 51.89 90.79 91.52",
    "Barlow Twins": "87.39 88.39 62.28 64.33 77.02 79.16 75.94 77.12 48.39 50.74 90.57 91.89",
    "FlatCLR": "88.61 89.22 63.27 64.51 79.06 80.24 77.96 79.19 52.61 54.14 91.48 92.54",
    "Spectral CL": "88.77 90.30 63.06 64.32 78.38 80.48 76.38 78.63 51.86 53.46 91.28 92.13",
    "SogCLR": "88.93 90.07 63.14 65.18 79.12 80.54 77.70 79.16 52.35 53.58 91.89 92.60",
    "VICReg": "88.96 89.90 62.44 64.18 79.58 80.16 75.05 77.84 48.43 51.68 92.18 93.03",
    "SimCo": "88.86 89.79 62.67 64.74 77.36 79.73 77.71 78.56 51.06 52.31 91.03 92.10",
    "iSogCLR": "89.24 90.25 63.82 65.95 79.42 81.14 78.37 79.69 53.06 54.42 92.33 93.08",
}
TAU_SIMCLR = {"cifar10": 86.80, "cifar100": 59.35, "cifar10-lt": 76.41, "cifar100-lt": 49.62}  # table 10


@pytest.mark.parametrize("method", LINEAR_TABLES)
def test_published_linear_figures(method: str) -> None:
    expected = iter(LINEAR_TABLES[method].split())
    for name in LINEAR_DATASETS:
        rows = [row for row in paper_rows(name, LINEAR) if row.method == method]
        assert [row.epochs for row in rows] == ([400, 800] if name.startswith("cifar") else [200, 400])
        assert [f"{row.figures['acc1'].value:.2f}" for row in rows] == [next(expected), next(expected)]
        assert all(0.06 <= (row.figures["acc1"].deviation or 0) <= 0.23 for row in rows)
        assert {row.figures["acc1"].table for row in rows} == {4 if name in LONG_TAILED else 3}
    assert next(expected, None) is None


LONG_TAILED = ("cifar10-lt", "cifar100-lt", "inaturalist")


def test_published_linear_tables_are_complete() -> None:
    for name in LINEAR_DATASETS:
        rows = paper_rows(name, LINEAR)
        assert len(rows) == 16 + (name in TAU_SIMCLR)
        assert len({row.label for row in rows}) == len(rows)
        assert len({row.loss for row in rows} - {None}) == 8 + (name in TAU_SIMCLR)
        assert not any(row.pretrained for row in rows)
    values = {name: paper_rows(name, LINEAR)[-1].figures["acc1"] for name in TAU_SIMCLR}
    assert {name: figure.value for name, figure in values.items()} == TAU_SIMCLR
    assert {(figure.table, figure.deviation) for figure in values.values()} == {(10, None)}


def test_published_ablations_come_on_demand() -> None:
    """Tables 8 (the best τ is the row of table 3) and 9."""

    def figures(name: str, table: int, method: str) -> list[float]:
        rows = [row for row in paper_rows(name, LINEAR, ablations=True) if row.variant and row.method == method]
        return [row.figures["acc1"].value for row in rows if row.figures["acc1"].table == table]

    assert figures("cifar10", 8, "SimCLR") == [85.85, 88.34, 88.74, 88.27]
    assert figures("cifar10", 8, "iSogCLR") == [89.00, 89.17, 89.24, 89.23]
    assert figures("cifar100", 8, "SimCLR") == [60.49, 62.34, 62.02, 61.73]
    assert figures("cifar100", 8, "iSogCLR") == [63.30, 63.73, 63.41, 63.50]
    assert figures("imagenet100", 8, "SimCLR") == [78.64, 79.96, 79.78, 79.42]
    assert figures("imagenet100", 8, "iSogCLR") == [80.82, 80.90, 80.86, 81.14]
    assert figures("cifar10", 9, "iSogCLR") == [88.98, 89.03, 88.99, 88.75]
    assert figures("cifar100", 9, "iSogCLR") == [63.02, 63.12, 63.27, 63.82]
    assert figures("imagenet100", 9, "iSogCLR") == [80.70, 80.96, 80.54, 80.18]
    assert figures("cifar10-lt", 9, "iSogCLR") == [77.86, 78.05, 78.31, 78.37]
    assert figures("cifar100-lt", 9, "iSogCLR") == [52.60, 52.75, 52.92, 53.04]
    assert figures("inaturalist", 9, "iSogCLR") == [92.13, 92.30, 92.79, 92.66]
    assert not any(row.variant for row in paper_rows("cifar10", LINEAR))


def linear_result(value: float, images: int = 10_000) -> Result:
    metrics = dict.fromkeys(metric_names(LINEAR), value)
    identity = Identity("resnet18", loss="isogclr", pretrained=False, seed=0, epoch=400)
    return Result("cifar10-lt", LINEAR, "/logs/run/checkpoints/epoch_400.pt", identity, images, True, metrics)


def test_a_linear_evaluation_is_compared_with_its_own_method() -> None:
    text = as_text(tables_of([linear_result(0.8)]))
    assert text.startswith("CIFAR10-LT, linear evaluation, 10,000 images, in percent")
    assert text.splitlines()[1].split() == [
        "epochs",
        "top-1",
        "top-5",
        "per",
        "class",
        "head",
        "middle",
        "tail",
        "kNN",
    ]
    assert text.count("minus") == 2  # 400 and 800 epochs of iSogCLR
    lines = [line.split() for line in text.splitlines()]
    assert ["minus", "iSogCLR", "400", "+1.63"] in lines
    assert ["minus", "iSogCLR", "800", "+0.31"] in lines
    assert any(line[:6] == ["Spectral", "CL", "(paper,", "table", "4)", "800"] for line in lines)
    assert "ρ 0.4" not in text
    assert "iSogCLR, τ_init 0.3, ρ 0.4 (paper, table 9)" in as_text(tables_of([linear_result(0.8)], ablations=True))
    rows = list(csv.DictReader(io.StringIO(as_csv(tables_of([linear_result(0.8)])))))
    assert rows[-1]["metric"] == "knn_acc1"
    ours = next(row for row in rows if row["source"] == "ours" and row["metric"] == "acc1")
    assert (ours["minus iSogCLR, 800 epochs"], ours["minus SimCLR, 800 epochs"]) == ("0.3100", "")
