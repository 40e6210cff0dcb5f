"""Tables of the trainings in memory: recall, leads of iSogCLR over the others, rare and frequent words."""

from __future__ import annotations

import memory_plan
import plan
from analysis import Rows, estimate, paired_difference, select
from grid import DataSet
from markdown_tables import MISSING, chosen_table, table

TITLES = {
    "clip": "CLIP",
    "siglip": "SigLIP",
    "cyclip": "CyCLIP",
    "sogclr": "SogCLR",
    "isogclr": "iSogCLR, paper's rule",
    "isogclr-log": "iSogCLR, log τ",
    "isogclr-recommended": "iSogCLR, as it comes",
    "isogclr-paper": "iSogCLR, the authors' recipe",
}
RECALLS = {
    "mean_recall": "mean of six",
    "image_to_text_R@1": "image → text R@1",
    "text_to_image_R@1": "text → image R@1",
}
THIRDS = {
    f"{side}_R@10_{third}": f"{short}, {third}"
    for side, short in (("image_to_text", "i → t R@10"), ("text_to_image", "t → i R@10"))
    for third in ("rare", "middle", "frequent")
}


def memory_tables(rows: Rows) -> list[str]:
    """A table for each data set that was compared."""
    parts = []
    for data_set in plan.DATA_SETS.values():
        found = select(rows, part="compare", data_set=data_set.name)
        if data_set.task in memory_plan.TASKS and found:
            parts += [f"### {data_set.name}", comparison(found, data_set), chosen_table(rows, data_set)]
    return parts


def comparison(rows: Rows, data_set: DataSet) -> str:
    """With the leads of both rules of iSogCLR, paired by seed, and their 95 % intervals."""
    columns = RECALLS | (THIRDS if data_set.task == "icons" else {})
    lines = []
    for name, title in TITLES.items():
        theirs = select(rows, method=name)
        if not theirs:
            continue
        leads = [
            MISSING
            if name == ours or not select(rows, method=ours)
            else "{:+.2f} ± {:.2f}".format(*paired_difference(select(rows, method=ours), theirs, data_set.metric))
            for ours in ("isogclr", "isogclr-log")
        ]
        lines.append([title, *(str(estimate(theirs, metric)) for metric in columns), *leads])
    return table(["", *columns.values(), "lead of the paper's rule", "lead of log τ"], lines)
