"""Model configurations of this project, as open_clip reads them: one JSON file a model."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent


def register() -> None:
    """Make the models of this folder known to open_clip by name. Calling it again changes nothing."""
    import open_clip  # noqa: PLC0415 (takes seconds)

    if not {path.stem for path in FOLDER.glob("*.json")} <= set(open_clip.list_models()):
        open_clip.add_model_config(FOLDER)
