"""The line of the log."""

from __future__ import annotations

from training.steps.metric_log import learned_summary


def temperatures(direction: str, mean: float) -> dict[str, float]:
    values = {"mean": mean, "q05": 0.01, "q50": 0.05, "q95": 0.25, "at_minimum": 0.125, "at_maximum": 0.0}
    return {f"{direction}.temperature.{name}": value for name, value in values.items()}


def test_directions_come_from_the_statistics() -> None:
    statistics = {"loss": 1.0, "image.log_mean.mean": -3.0, "objective": 0.5}
    both = {**statistics, **temperatures("image", 0.0625), **temperatures("text", 0.125), "kept_rows": 2.0}
    assert learned_summary(both) == (
        " Objective: 0.50000 τ image: 0.0625 (0.01 0.05 0.25; 12/0% at bounds)"
        " τ text: 0.125 (0.01 0.05 0.25; 12/0% at bounds) Not finite: 2 rows kept"
    )
    one = learned_summary({**statistics, **temperatures("picture", 0.0625)})
    assert one == " Objective: 0.50000 τ picture: 0.0625 (0.01 0.05 0.25; 12/0% at bounds)"
    assert learned_summary({"loss": 1.0}) == ""
