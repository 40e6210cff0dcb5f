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
from isogclr.evaluation.suites import CLASSIFICATION, DATASETS, RETRIEVAL, metric_names

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
