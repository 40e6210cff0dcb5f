"""From the table of results to choices, means and intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from grid import DataSet, Flags, Method, Run
from scipy.stats import t as student

Rows = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds, with the standard deviation of one seed."""

    mean: float
    deviation: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """A value per seed."""
        found = np.array(values)
        deviation = float(found.std(ddof=1)) if len(found) > 1 else float("nan")
        return cls(float(found.mean()) if len(found) else float("nan"), deviation, len(found))

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.deviation:.2f}" if self.seeds > 1 else f"{self.mean:.2f}"


def select(rows: Rows, **wanted: str) -> list[Mapping[str, str]]:
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def last_value(rows: Rows, metric: str) -> float:
    """Of one run, after its last epoch."""
    found = [row for row in rows if row["metric"] == metric]
    return float(max(found, key=lambda row: float(row["epoch"] or 0))["value"]) if found else float("nan")


def by_seed(rows: Rows, metric: str) -> dict[int, float]:
    """The last value of each seed."""
    return {
        int(seed): last_value(select(rows, seed=seed), metric)
        for seed in sorted({row["seed"] for row in rows}, key=int)
    }


def estimate(rows: Rows, metric: str) -> Estimate:
    return Estimate.of([*by_seed(rows, metric).values()])


def paired_difference(rows: Rows, baseline: Rows, metric: str, level: float = 0.95) -> tuple[float, float]:
    """Mean difference over the seeds that both have, and half the width of its confidence interval (Student)."""
    ours, theirs = by_seed(rows, metric), by_seed(baseline, metric)
    differences = np.array([ours[seed] - theirs[seed] for seed in ours if seed in theirs])
    if len(differences) < 2:
        return float(differences.mean()) if len(differences) else float("nan"), float("nan")
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return float(differences.mean()), float(error * student.ppf((1 + level) / 2, len(differences) - 1))


def best_settings(rows: Rows, data_set: DataSet, methods: Mapping[str, Method]) -> dict[str, Flags]:
    """Of every method, the trial with the best value on the validation part."""
    tuned = select(rows, part="tune", data_set=data_set.name)
    chosen = {}
    for name, method in methods.items():
        scores = {}
        for number, trial in enumerate(method.trials):
            text = Run("tune", data_set, name, method.loss, trial, 0, "validation").setting_text
            scores[number] = last_value(select(tuned, method=name, setting=text), data_set.metric)
        missing = [number for number, score in scores.items() if np.isnan(score)]
        if missing:
            raise SystemExit(f"{data_set.name}, {name}: {len(missing)} trials are not in the table of results")
        chosen[name] = method.trials[max(scores, key=lambda number: scores[number])]
    return chosen
