"""open_clip model configurations that come with this package: the paper's, and a tiny one for demo and tests."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def register() -> None:
    """Make the models of this folder known to open_clip by name. Calling it again changes nothing."""
    import open_clip  # noqa: PLC0415 (takes seconds to import)

    if not {path.stem for path in FOLDER.glob("*.json")} <= set(open_clip.list_models()):
        open_clip.add_model_config(FOLDER)


def register_variant(name: str, text_cfg: Mapping[str, Any]) -> str:
    """A known model with other values in its `text_cfg`, under a name of its own, which is returned."""
    import open_clip  # noqa: PLC0415

    config = open_clip.get_model_config(name)
    assert config is not None
    config["text_cfg"].update(text_cfg)
    variant = f"{name}--local-text"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{variant}.json").write_text(json.dumps(config), encoding="utf-8")
        open_clip.add_model_config(Path(folder) / f"{variant}.json")
    return variant
