"""`epoch_N.pt`: how open_clip names the checkpoints of a run. No torch here: the report looks for them too."""

from __future__ import annotations

import re
from pathlib import Path

_NAME = re.compile(r"epoch_(\d+)\.pt")


def epoch_file_name(completed_epochs: int) -> str:
    return f"epoch_{completed_epochs}.pt"


def newest_epoch_file(folder: Path) -> Path | None:
    """That of the latest epoch; `epoch_latest.pt` does not count."""
    found = [(int(match[1]), path) for path in folder.glob("epoch_*.pt") if (match := _NAME.fullmatch(path.name))]
    return max(found)[1] if found else None
