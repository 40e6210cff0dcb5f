"""Modules of scripts/data, which are programs and no package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "data"


def script(name: str) -> ModuleType:
    """The module, with its neighbours found as when it runs as a program; the path is left as it was."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(SCRIPTS))
