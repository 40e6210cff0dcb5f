"""The model of a run, if it can be had; why not becomes a note of the run."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from isogclr.errors import IsogclrError
from isogclr.report.detail import Embed
from isogclr.report.loading import Run

LoadEmbedder = Callable[[Path], Embed]  # from a checkpoint; raises an error of ours, or OSError
_PACKAGES = ("scipy", "sklearn", "threadpoolctl")  # for whatever is said of embeddings; imported when they are


def load_model_of(run: Run, load_embedder: LoadEmbedder | None) -> Embed | None:
    """Its newest checkpoint, ready to embed samples; None if nobody asked for it, or if something is missing."""
    if load_embedder is None:
        run.notes.append("Embeddings were not asked for: nothing on neighbours, the map and hard negatives.")
        return None
    if run.checkpoint is None:
        return None
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing:
        run.notes.append(
            f"Found no {' and no '.join(missing)}, so nothing on neighbours and hard negatives: "
            "`pip install isogclr[report]`."
        )
        return None
    try:
        return load_embedder(run.checkpoint)
    except (IsogclrError, OSError, ValueError, RuntimeError) as error:
        run.notes.append(f"The model can not be loaded, so nothing on neighbours and hard negatives: {error}")
        return None
