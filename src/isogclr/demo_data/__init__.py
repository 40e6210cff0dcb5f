"""Emoji with captions, as tar shards inside the package: real pictures for the demo and for tests, no download.

Three art styles for training, a fourth for testing; docs/demo_data.md is the data card, LICENSES and NOTICE.md say
whose drawings they are. The shards are read by open_clip, webdataset and `ShardIndex` as any others.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
TRAIN_SAMPLES = 3904
TEST_SAMPLES = 1592
TRAIN_DATA = str(FOLDER / "train-{000..007}.tar")  # as open_clip's --train-data takes it
TEST_DATA = str(FOLDER / "test-{000..001}.tar")  # the held-out style, as --val-data takes it


def manifest() -> dict[str, Any]:
    """Styles, licences, checksums and counts, as the script that made the data wrote them."""
    found: dict[str, Any] = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    return found
