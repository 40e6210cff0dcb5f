"""`training.main` with every rank on a node of its own: `@NODE@` in the command line is the number of the node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from training import main as trainer


def main(argv: Sequence[str]) -> int:
    """DAMAGE_NODE: the node whose store is damaged behind its back, before its first commit."""
    node = os.environ.get("RANK", "0")
    os.environ["SLURM_NODEID"] = node
    if os.environ.get("DAMAGE_NODE") == node:
        _damage()
    return trainer.main([word.replace("@NODE@", node) for word in argv])


def _damage() -> None:
    from isogclr.state.layout import DATA_OFFSET  # noqa: PLC0415
    from training.commits import commit as checkpoint  # noqa: PLC0415

    original = checkpoint.check_stores_agree

    def damaging(store: Any, *rest: Any) -> None:
        with store._live.path.open("r+b") as file:
            file.seek(DATA_OFFSET + 5)
            file.write(b"\x55")
        original(store, *rest)

    checkpoint.check_stores_agree = damaging  # type: ignore[attr-defined]
