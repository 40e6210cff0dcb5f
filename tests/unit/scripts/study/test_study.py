"""The study's bookkeeping: what is chosen, what is compared, what is not run again."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel

from support.data_scripts import script

analysis, grid, plan = (script(name, "study") for name in ("analysis", "grid", "plan"))
runs, tables = (script(name, "study") for name in ("training_runs", "tables"))
age, better, memory_tables = (script(name, "study") for name in ("age_of_s", "estimates_of_s", "memory_tables"))

FROZEN = plan.DATA_SETS["emoji-frozen"]


def row(method: str, seed: int, value: float, **more: str) -> dict[str, str]:
    given = {
        **dict.fromkeys(runs.COLUMNS, ""),
        "part": "compare",
        "data_set": FROZEN.name,
        "method": method,
        "seed": str(seed),
        "epoch": "12",
        "metric": "mean_recall",
        "value": str(value),
    }
    return given | more


def a_run(**changes: Any) -> Any:
    values = {
        "part": "tune",
        "data_set": FROZEN,
        "method": "clip",
        "loss": "clip",
        "setting": {"lr": 0.001},
        "seed": 3,
        "split": "validation",
    }
    return grid.Run(**{**values, **changes})


class TestAnalysis:
    def test_paired_difference_is_the_interval_of_a_paired_t_test(self) -> None:
        ours, theirs = [41.0, 42.5, 40.2, 43.3, 41.7], [40.1, 41.2, 40.0, 41.1, 41.9]
        mine = [row("isogclr", seed, value) for seed, value in enumerate(ours)]
        baseline = [row("clip", seed, value) for seed, value in reversed(list(enumerate(theirs)))]
        difference, half = analysis.paired_difference(mine, baseline, "mean_recall")
        interval = ttest_rel(ours, theirs).confidence_interval(0.95)
        assert (difference - half, difference + half) == pytest.approx((interval.low, interval.high))

    def test_only_seeds_that_both_have_are_paired(self) -> None:
        mine = [row("isogclr", 0, 5.0), row("isogclr", 1, 7.0)]
        baseline = [row("clip", 1, 4.0), row("clip", 2, 90.0)]
        difference, half = analysis.paired_difference(mine, baseline, "mean_recall")
        assert difference == 3.0
        assert math.isnan(half)

    def test_the_last_epoch_counts(self) -> None:
        rows = [row("clip", 0, 9.0, epoch="12"), row("clip", 0, 50.0, epoch="2"), row("clip", 1, 11.0)]
        found = analysis.estimate(rows, "mean_recall")
        assert (found.mean, found.deviation, found.seeds) == (10.0, pytest.approx(math.sqrt(2)), 2)

    def test_the_best_trial_on_the_validation_part_is_chosen(self) -> None:
        methods = plan.methods(FROZEN)
        rows = []
        for name, method in methods.items():
            for number, trial in enumerate(method.trials):
                text = a_run(setting=trial).setting_text
                score = 50 - abs(number - 3)  # the fourth is best, if there is one
                rows.append(row(name, 100, score, part="tune", split="validation", setting=text))
        chosen = analysis.best_settings(rows, FROZEN, methods)
        assert chosen == {name: method.trials[3 if name != plan.PRESET else 0] for name, method in methods.items()}
        with pytest.raises(SystemExit, match="clip: 1 trials are not in the table"):
            analysis.best_settings(rows[1:], FROZEN, methods)


class TestPlan:
    @pytest.mark.parametrize("name", plan.DATA_SETS)
    def test_every_method_has_as_many_trials(self, name: str) -> None:
        data_set = plan.DATA_SETS[name]
        trials = {name: len(set(map(str, one.trials))) for name, one in plan.methods(data_set).items()}
        of_name = {"flickr8k-b128-e15": 12, "quickdraw-lt": 3}
        expected = of_name.get(name, {"features": 4, "icons": 4, "unimodal": 4}.get(data_set.task, 6))
        assert trials.pop(plan.PRESET, 1) == trials.pop("isogclr-paper", 1) == 1
        assert set(trials.values()) == {expected}
        assert len(trials) == {"features": 6, "icons": 6, "unimodal": 9}.get(data_set.task, 5)

    def test_settings_come_from_trials_of_the_data_set_or_of_one_that_has_them(self) -> None:
        of_others = {one.name: one.tuned_on for one in plan.DATA_SETS.values() if one.tuned_on}
        assert of_others == {"views-cifar10": "views-cifar10-lt", "views-cifar100": "views-cifar100-lt"}
        for name, other in of_others.items():
            source = plan.DATA_SETS[other]
            assert source.tuned_on is None
            assert plan.methods(source) == plan.methods(plan.DATA_SETS[name])

    def test_isogclr_on_pairs_starts_from_the_papers_preset_unless_another_is_named(self) -> None:
        """As when the published rows were made."""
        tuned, named = {"isogclr_rho": 1.0}, {"isogclr_preset": "recommended"}
        assert a_run(loss="isogclr", setting=tuned).flags["isogclr_preset"] == "paper"
        assert a_run(loss="isogclr", setting=named).flags["isogclr_preset"] == "recommended"
        assert "isogclr_preset" not in a_run(loss="clip").flags
        views = plan.DATA_SETS["views-cifar10-lt"]
        assert "isogclr_preset" not in a_run(loss="isogclr", data_set=views).flags

    def test_test_and_validation_are_never_mixed(self) -> None:
        chosen = {name: method.trials[0] for name, method in plan.methods(FROZEN).items()}
        assert {run.split for run in plan.tuning(FROZEN)} == {"validation"}
        assert {run.split for run in plan.ablations(FROZEN, chosen)} == {"validation"}
        compared = list(plan.comparison(FROZEN, chosen))
        assert {run.split for run in compared} == {"test"}
        assert plan.TUNING_SEED not in {run.seed for run in compared}
        assert len({run.key for run in compared}) == len(compared) == 5 * len(chosen)


class TestResults:
    def test_what_is_there_is_not_run_again(self, tmp_path: Path) -> None:
        path = tmp_path / "results.csv"
        first = runs.Results(path)
        first.add(a_run(), [("1", "mean_recall", 12.34567891), ("", "image_temperature_q50", 0.05)], 7.0, "abc")
        again = runs.Results(path)
        assert again.has(a_run())
        assert not again.has(a_run(seed=4))
        assert not again.has(a_run(setting={"lr": 0.002}))
        assert not again.has(a_run(split="test"))
        with path.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.DictReader(stream))
        assert [line["value"] for line in lines] == ["12.3457", "0.05"]
        others = {(line["seconds"], line["commit"], line["setting"]) for line in lines}
        assert others == {("7.0", "abc", "lr=0.001")}

    def test_another_table_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
        with pytest.raises(SystemExit, match="has columns"):
            runs.Results(tmp_path / "other.csv")

    def test_part_of_the_training_shards(self, tmp_path: Path) -> None:
        for name in ("train-000", "train-001", "train-002", "validation-000", "validation-001"):
            (tmp_path / f"{name}.tar").touch()
        chosen = {name: method.trials[0] for name, method in plan.methods(FROZEN).items()}
        first = next(plan.less_data(FROZEN, chosen))
        assert (first.data_set.name, first.data_set.train_shards) == ("emoji-frozen-2-of-8", 2)
        line = " ".join(runs.command_line(first, tmp_path, tmp_path))
        assert "train-001.tar" in line
        assert "train-002.tar" not in line
        assert "validation-001.tar" in line

    def test_no_shards(self, tmp_path: Path) -> None:
        with pytest.raises(SystemExit, match=r"has no train-\*\.tar"):
            runs.command_line(a_run(), tmp_path, tmp_path)


class TestTablesOfTrainingsInMemory:
    flickr = plan.DATA_SETS["flickr8k-b128-e15"]

    def test_memory_is_compared_over_trials_that_differ_in_nothing_else(self) -> None:
        common = {"part": "tune", "data_set": self.flickr.name, "split": "validation"}
        rows = [
            row("sogclr", 100, value, setting=f"lr={lr} sogclr_gamma={gamma}", **common)
            for lr, gamma, value in ((0.1, 0.8, 41.0), (0.1, 1.0, 40.0), (0.2, 0.8, 38.5), (0.2, 1.0, 39.0))
        ]
        rows.append(row("sogclr", 100, 90.0, setting="lr=0.3 sogclr_gamma=0.8", **common))  # without a partner
        found = memory_tables.memory_in_trials(rows, [self.flickr]).splitlines()[-1]
        assert found == "| flickr8k-b128-e15 | 1 of 2 | +0.25 | -0.50 | +1.00 |"

    def test_leads_in_the_overview(self) -> None:
        values = {"clip": 40.0, "siglip": 38.0, "cyclip": 41.0, "sogclr": 42.0, "isogclr-log": 41.5}
        rows = [
            row(method, seed, value + seed, data_set=self.flickr.name)
            for method, value in values.items()
            for seed in (0, 1)
        ]
        found = memory_tables.overview(rows, [self.flickr]).splitlines()[-1]
        assert found.endswith("| +1.50 ± 0.00 | +3.50 ± 0.00 | +0.50 ± 0.00 | -0.50 ± 0.00 |")
        without = memory_tables.overview(rows[2:], [self.flickr]).splitlines()[-1]
        assert without.startswith("| flickr8k-b128-e15 | – |")
        assert without.endswith("| – | +3.50 ± 0.00 | +0.50 ± 0.00 | -0.50 ± 0.00 |")
        assert len(memory_tables.overview(rows[:-2], [self.flickr]).splitlines()) == 2  # iSogCLR is missing

    def test_knobs_of_one_temperature_and_of_all(self) -> None:
        common = {"part": "knob", "data_set": self.flickr.name, "split": "validation"}
        rows = [
            *(
                row("sogclr", seed, 40.0 + seed, setting="lr=1 sogclr_temperature=0.05", **common)
                for seed in (0, 2)
            ),
            row("sogclr", 0, 39.0, setting="lr=1 sogclr_temperature=0.03", **common),
            row("isogclr-log", 0, 42.0, setting="isogclr_rho=2.0 lr=1", **common),
        ]
        lines = memory_tables.knob_table(rows, [self.flickr]).splitlines()[2:]
        assert [line.split(" | ")[1] for line in lines] == [
            "SogCLR, temperature 0.03",
            "SogCLR, temperature 0.05",
            "iSogCLR, log τ, rho 2",
        ]
        assert [line.split(" | ")[2] for line in lines] == ["39.00 |", "41.00 ± 1.41 |", "42.00 |"]

    def test_what_a_better_s_is_worth(self, tmp_path: Path) -> None:
        with (tmp_path / "s.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(better.COLUMNS)
            for batch, name, seed, value in ((32, "batch", 0, 40), (32, "exact", 0, 41), (32, "exact", 1, 43)):
                writer.writerow(("photos", 90, batch, 8, 0.1, 0.1, 0.03, name, seed, value))
            writer.writerow(("photos", 90, 64, 8, 0.1, 0.1, 0.03, "exact", 0, 44))
        lines = memory_tables.estimates_table(tmp_path / "s.csv").splitlines()[2:]
        assert lines == [
            "| photos, 90 pairs, batch 32, 8 epochs | 40.00 | 42.00 ± 1.41 |",
            "| photos, 90 pairs, batch 64, 8 epochs | – | 44.00 |",
        ]

    def test_error_of_s_by_part_of_the_run(self, tmp_path: Path) -> None:
        with (tmp_path / "age.csv").open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(age.COLUMNS)
            for epoch in range(1, 11):
                for side in ("image", "text"):
                    for memory in memory_tables.AGE_COLUMNS:
                        writer.writerow(("photos", 8, 10, 0.05, 0, epoch, side, memory, 0.0, epoch))
        lines = memory_tables.age_table(tmp_path / "age.csv").splitlines()[2:]
        assert [line.split(" | ")[2] for line in lines] == ["1.50", "4.00", "8.00"]
