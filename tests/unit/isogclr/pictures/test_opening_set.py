"""Which layout a path has; what all of them share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from isogclr.errors import DataError
from isogclr.pictures import open_pictures
from support.picture_sets import (
    write_folders,
    write_shards,
)


def test_kinds_are_not_mixed(tmp_path: Path) -> None:
    urls = write_shards(tmp_path / "shards", [[0]])
    root = write_folders(tmp_path / "data", {"a": 1})
    with pytest.raises(DataError, match="mixes shards, folders and CIFAR"):
        open_pictures(f"{urls}::{root}")


def test_digests_tell_sets_apart(tmp_path: Path) -> None:
    one = write_folders(tmp_path / "one", {"a": 2, "b": 1})
    same = write_folders(tmp_path / "same", {"a": 2, "b": 1})
    other = write_folders(tmp_path / "other", {"a": 2, "c": 1})
    digests = [open_pictures(str(path)).digest for path in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_the_package_imports_without_torch() -> None:
    """The report reads pictures, and does without."""
    code = "import sys, isogclr.pictures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
