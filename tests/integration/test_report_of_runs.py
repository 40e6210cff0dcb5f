"""The report of runs of `python -m training.main` itself, on emoji of the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from isogclr import demo_data
from isogclr.cli import main
from support.micro_run import arguments, run


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
