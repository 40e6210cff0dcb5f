"""The report of runs of the programs themselves: `training.main` on emoji of the package, `training.unimodal`."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from isogclr import demo_data
from isogclr.cli import main
from support.micro_run import arguments, command_line, run
from support.unimodal_runs import write_coloured


@pytest.mark.slow
def test_runs_of_the_trainer(tmp_path: Path) -> None:
    """Every part of the page is there, and nothing is missing: the files of a run are what the report expects."""
    train, test = demo_data.FOLDER / "train-000.tar", demo_data.FOLDER / "test-000.tar"
    for name, flags in (
        ("a", {"loss": "isogclr", "isogclr_rho": 1.0, "isogclr_temperature_init": 0.05}),
        ("b", {"loss": "clip"}),
    ):
        line = arguments(
            "isogclr-tiny",
            str(train),
            tmp_path / "logs",
            name,
            **{"val_data": test, "epochs": 2, "batch_size": 61, **flags},
        )
        run(line, tmp_path / "work")
    runs = [str(tmp_path / "logs" / name) for name in "ab"]
    assert main(["report", *runs, "--output", str(tmp_path / "out"), "--extremes", "4", "--samples", "200"]) == 0
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What could not be shown" not in text
    assert "complete: 2 epochs" in text
    assert "200 of 488 visited samples were drawn at random" in text
    for figure in ("loss", "recall", "final_temperatures", "temperature_curves", "epochs", "health"):
        assert f'id="figure-{figure}"' in text
    for section in ("gallery", "semantics", "negatives", "samples", "health", "configuration"):
        assert f'<section id="{section}">' in text
    assert "R@1 image → text" in text


@pytest.mark.slow
def test_runs_on_pictures_alone(tmp_path: Path) -> None:
    """The same of `python -m training.unimodal`, long-tailed, beside a loss that has no temperatures."""
    data = write_coloured(tmp_path / "train", {"ant": 60, "bee": 60, "cat": 60})
    test = write_coloured(tmp_path / "test", {"ant": 4, "bee": 4, "cat": 4})
    for name, flags in (("a", {"loss": "isogclr", "imbalance": 5}), ("b", {"loss": "barlow-twins"})):
        common = {"data": data, "val_data": test, "logs": tmp_path / "logs", "name": name, "device": "cpu"}
        model = {"backbone": "tiny", "projector": "16-8", "image_size": 16, "workers": 0}
        steps = {"batch_size": 20, "epochs": 2, "warmup_epochs": 0, "lr": 0.1, "log_every_n_steps": 1}
        run(command_line(common | model | steps | flags), tmp_path, module="training.unimodal")
    runs = [str(tmp_path / "logs" / name) for name in "ab"]
    assert main(["report", *runs, "--output", str(tmp_path / "out"), "--extremes", "4"]) == 0
    text = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "What could not be shown" not in text
    for figure in ("loss", "accuracy", "final_temperatures", "temperature_curves", "epochs", "health"):
        assert f'id="figure-{figure}"' in text
    for figure in ("classes", "class_extremes", "arrangement"):
        assert f'id="figure-{figure}"' in text
    for section in ("classes", "arrangement", "gallery", "semantics", "negatives", "samples", "configuration"):
        assert f'<section id="{section}">' in text
    with (tmp_path / "out" / "data" / "classes.csv").open(encoding="utf-8", newline="") as file:
        sizes = {line["class"]: int(line["pictures"]) for line in csv.DictReader(file)}
    assert sizes["ant"] > sizes["bee"] > sizes["cat"]  # of 60, 26 and 12, those that full batches have visited
