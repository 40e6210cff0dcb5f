"""`training.main` that is asked to stop at a chosen step, by real signals.

STOP_AT says before which step SIGNAL (default: SIGTERM) arrives, counted from 0 in each process, with one count
more at the end of every epoch: at the rank STOP_RANK or at all of them, and at their data workers. -1 stands for
the time before torch is loaded. The signal comes once more in the middle of the commit. DECODED names a file for
the number of images that this process has decoded.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.signals import StopRequest


class Scheduler(StopRequest):
    """Sends the signals. The loop asks before every step, and at the end of an epoch, whether there was one."""

    step = -1

    def __bool__(self) -> bool:
        self.step += 1
        if self.is_time():
            send()
        return super().__bool__()

    def is_time(self) -> bool:
        is_addressed = os.environ.get("STOP_RANK", os.environ.get("RANK")) == os.environ.get("RANK")
        return is_addressed and self.step >= int(os.environ.get("STOP_AT", "1000000"))

    def during_commit(self, event: str, details: tuple[Any, ...]) -> None:
        if event == "os.rename" and self.is_time() and "/.partial-generation-" in os.fspath(details[0]):
            send()


def send() -> None:
    """As Slurm does: to every process of the job."""
    number = signal.Signals[os.environ.get("SIGNAL", "SIGTERM")]
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    for pid in (*map(int, children), os.getpid()):
        os.kill(pid, number)


def main(argv: Sequence[str]) -> int:
    stop = Scheduler.install()
    assert isinstance(stop, Scheduler)
    if os.environ.get("STOP_AT") == "-1":
        send()
    sys.addaudithook(stop.during_commit)
    from training.open_clip_program import OpenClipProgram  # noqa: PLC0415
    from training.run import run  # noqa: PLC0415 (as training.main does)

    decoded = count_decoded()
    code = run(OpenClipProgram, argv, stop)
    if "DECODED" in os.environ:
        Path(os.environ["DECODED"]).write_text(str(len(decoded)), encoding="ascii")
    return code


def count_decoded() -> list[str]:
    """In this process, so with `--workers 0`."""
    from training.data.image_text import PairFiles  # noqa: PLC0415

    decoded: list[str] = []
    decode = PairFiles.decode

    def counted(self: PairFiles, content: tuple[bytes, bytes]) -> Any:
        decoded.append("")
        return decode(self, content)

    PairFiles.decode = counted  # type: ignore[method-assign]
    return decoded
