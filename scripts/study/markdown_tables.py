"""Tables as Markdown that several pages of the study share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plan
from analysis import Rows, best_settings, last_value, paired_difference, select
from grid import DataSet, setting_text

MISSING = "–"  # not run


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines))


def lead_of(ours: Rows, theirs: Rows, metric: str) -> str:
    """Paired by seed, with half of its 95 % interval if there are seeds enough for one."""
    mean, half = paired_difference(ours, theirs, metric)
    return f"{mean:+.2f}" if math.isnan(half) else f"{mean:+.2f} ± {half:.2f}"


def chosen_table(rows: Rows, data_set: DataSet) -> str:
    """Of every method that has all its trials, the setting that was best on the validation part."""
    tuned = select(rows, part="tune", data_set=data_set.name)
    settings = {name: {row["setting"] for row in select(tuned, method=name)} for name in plan.methods(data_set)}
    tried = {
        name: method
        for name, method in plan.methods(data_set).items()
        if settings[name] >= {setting_text(trial) for trial in method.trials}
    }
    lines = []
    for method, setting in best_settings(rows, data_set, tried).items():
        text = setting_text(setting)
        score = last_value(select(tuned, method=method, setting=text), data_set.metric)
        lines.append([method, f"`{text}`", f"{score:.2f}"])
    return table(["", "chosen setting", "on the validation part"], lines)
