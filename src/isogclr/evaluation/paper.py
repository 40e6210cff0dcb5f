"""The figures to stand beside, from `paper.json`: the paper's tables 5, 6 and 7, and TempNet's."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("paper.json")


@dataclass(frozen=True)
class Figure:
    """A published value in percent, with its standard deviation if that was published."""

    value: float
    deviation: float | None
    table: int | None


@dataclass(frozen=True)
class PaperRow:
    """What a publication says of one method on one data set."""

    method: str
    source: str
    pretrained: bool
    figures: dict[str, Figure]  # by metric


def paper_rows(dataset: str) -> list[PaperRow]:
    """Rows in the order of the tables; none for a data set that is in no table."""
    rows = []
    for source in json.loads(FILE.read_text(encoding="utf-8"))["sources"]:
        for table in source["tables"]:
            if table["dataset"] != dataset:
                continue
            for method, values in table["rows"].items():
                figures = {
                    metric: Figure(value, deviation, table["table"])
                    for metric, (value, deviation) in zip(table["metrics"], values, strict=True)
                }
                rows.append(PaperRow(method, source["source"], source["pretrained"], figures))
    return rows
