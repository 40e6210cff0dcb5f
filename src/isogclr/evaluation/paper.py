"""The figures to stand beside.

From `paper.json` the paper's tables 5, 6 and 7, and TempNet's; from `unimodal_paper.json` its linear evaluation,
tables 3, 4 and 10 (table 1 repeats columns of theirs), with the ablations of tables 8 and 9.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from isogclr.evaluation.suites import LINEAR

FILE = Path(__file__).with_name("paper.json")
UNIMODAL_FILE = Path(__file__).with_name("unimodal_paper.json")


@dataclass(frozen=True)
class Figure:
    """A published value in percent, with its standard deviation if that was published."""

    value: float
    deviation: float | None
    table: int | None


@dataclass(frozen=True)
class PaperRow:
    """What a publication says of one method on one data set.

    Attributes:
        epochs: of training before the linear evaluation.
        variant: the options of an ablation.
        loss: our name of the method, in the tables of the linear evaluation.
    """

    method: str
    source: str
    pretrained: bool
    figures: dict[str, Figure]  # by metric
    epochs: int | None = None
    variant: str | None = None
    loss: str | None = None

    @property
    def label(self) -> str:
        """The method, with whatever tells two rows of it apart."""
        parts = (self.method, self.variant, f"{self.epochs} epochs" if self.epochs else None)
        return ", ".join(part for part in parts if part)


def paper_rows(dataset: str, task: str | None = None, ablations: bool = False) -> list[PaperRow]:
    """Rows in the order of the tables; none for a data set that is in no table."""
    rows = []
    file = UNIMODAL_FILE if task == LINEAR else FILE
    for source in json.loads(file.read_text(encoding="utf-8"))["sources"]:
        for table in source["tables"]:
            if table["dataset"] != dataset or ("variant" in table and not ablations):
                continue
            for method, values in table["rows"].items():
                figures = {
                    metric: Figure(value, deviation, table["table"])
                    for metric, (value, deviation) in zip(table["metrics"], values, strict=True)
                }
                rows.append(
                    PaperRow(
                        method=method,
                        source=source["source"],
                        pretrained=source["pretrained"],
                        figures=figures,
                        epochs=table.get("epochs"),
                        variant=table.get("variant"),
                        loss=source.get("losses", {}).get(method),
                    )
                )
    return rows
