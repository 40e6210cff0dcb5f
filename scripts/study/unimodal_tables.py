"""Tables of the trainings on pictures alone, beside the paper's figures: whether its order of methods holds."""

from __future__ import annotations

from collections.abc import Mapping

import plan
import unimodal_plan
from analysis import Rows, by_seed, estimate, select
from grid import DataSet
from markdown_tables import MISSING, chosen_table, lead_of, table
from scipy.stats import spearmanr

from isogclr.evaluation.paper import paper_rows
from isogclr.evaluation.suites import LINEAR

OURS = "isogclr"
COLUMNS = {
    "accuracy": "top-1",
    "head": "head third",
    "middle": "middle",
    "tail": "tail third",
    "knn": "kNN",
}
PAPERS_EPOCHS = 400


def unimodal_tables(rows: Rows) -> list[str]:
    """Nothing for a data set that was not run to its end."""
    parts = []
    for data_set in plan.DATA_SETS.values():
        found = select(rows, part="compare", data_set=data_set.name)
        if data_set.task == unimodal_plan.TASK and found:
            parts += [f"### {data_set.name}", _comparison(found, data_set), _agreement(found, data_set)]
            of = data_set.tuned_on
            parts.append(f"Settings: those of {of}." if of else chosen_table(rows, data_set))
    return parts


def papers_figures(data_set: DataSet) -> Mapping[str, float]:
    """Top-1 after 400 epochs, by loss."""
    found = paper_rows(data_set.name.removeprefix("views-"), LINEAR)
    return {row.loss: row.figures["acc1"].value for row in found if row.loss and row.epochs == PAPERS_EPOCHS}


def _comparison(rows: Rows, data_set: DataSet) -> str:
    """Best first; differences are iSogCLR's lead, paired by seed."""
    paper = papers_figures(data_set)
    measured = [*_methods(rows, data_set), unimodal_plan.UNTRAINED]
    losses = sorted(measured, key=lambda one: -estimate(select(rows, method=one), "accuracy").mean)
    columns = {metric: title for metric, title in COLUMNS.items() if select(rows, metric=metric)}
    lines = []
    for loss in losses:
        theirs = select(rows, method=loss)
        if not theirs:
            continue
        lead = MISSING
        if loss != OURS:
            lead = lead_of(select(rows, method=OURS), theirs, data_set.metric)
        values = [str(estimate(theirs, metric)) for metric in columns]
        lines.append([loss, *values, lead, f"{paper[loss]:.2f}" if loss in paper else MISSING])
    return table(["", *columns.values(), "lead of iSogCLR", "paper, 400 epochs"], lines)


def _agreement(rows: Rows, data_set: DataSet) -> str:
    """Rank correlation of our order with the paper's, and how far apart the seeds are."""
    paper = papers_figures(data_set)
    losses = [loss for loss in _methods(rows, data_set) if loss in paper]
    ours = [estimate(select(rows, method=loss), "accuracy").mean for loss in losses]
    correlation = spearmanr(ours, [paper[loss] for loss in losses])[0]
    seeds = len(by_seed(select(rows, method=OURS), "accuracy"))
    who = f"{len(losses)} methods, {seeds} seeds"
    return f"Rank correlation of our order with the paper's: {correlation:+.2f} ({who})."


def _methods(rows: Rows, data_set: DataSet) -> list[str]:
    return [name for name in plan.methods(data_set) if select(rows, method=name)]
