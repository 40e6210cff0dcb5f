"""Modules of scripts/data and scripts/study, which are programs and no packages."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


def script(name: str, folder: str = "data") -> ModuleType:
    """The module, with its neighbours found as when it runs as a program; the path is left as it was."""
    place = str(SCRIPTS / folder)
    sys.path.insert(0, place)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(place)
