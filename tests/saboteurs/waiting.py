"""`training.main` whose data does not come: on rank WAIT_RANK, once a process has decoded WAIT_AFTER samples.

WAIT_FOR is what it waits for: `fifo`, a file that nobody writes to; or `program`, one that says nothing and does
not end, and is waited for again when the reader of its output cleans up, as webdataset does with `pipe:`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training import main as trainer


def main(argv: Sequence[str]) -> int:
    from training.data.image_text import PairFiles  # noqa: PLC0415 (as training.main does)

    decode = PairFiles.decode
    decoded = 0

    def decode_or_wait(self: PairFiles, content: tuple[bytes, bytes]) -> Any:
        nonlocal decoded
        if os.environ.get("RANK", "0") == os.environ["WAIT_RANK"] and decoded == int(os.environ["WAIT_AFTER"]):
            wait(os.environ["WAIT_FOR"])
        decoded += 1
        return decode(self, content)

    PairFiles.decode = decode_or_wait  # type: ignore[method-assign]
    return trainer.main(argv)


def wait(what: str) -> None:
    if what == "fifo":
        path = Path(f"fifo-{os.getpid()}")
        os.mkfifo(path)
        path.read_bytes()
    with subprocess.Popen(["sleep", "120"], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.read()
