"""`training.main` in which rank FAIL_RANK raises in step FAIL_AT; with HANGS it can not close its logger."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from training.signals import StopRequest

MESSAGE = "broken on purpose"


class Saboteur(StopRequest):
    """The loop asks before every step whether there was a signal."""

    step = -1

    def __bool__(self) -> bool:
        self.step += 1
        if os.environ["RANK"] == os.environ["FAIL_RANK"] and self.step == int(os.environ["FAIL_AT"]):
            raise ValueError(MESSAGE)
        return super().__bool__()


def main(argv: Sequence[str]) -> int:
    from training.open_clip_program import OpenClipProgram  # noqa: PLC0415
    from training.run import run  # noqa: PLC0415 (as training.main does)
    from training.steps.metric_log import MetricLog  # noqa: PLC0415

    if os.environ["RANK"] == os.environ["FAIL_RANK"] and "HANGS" in os.environ:
        MetricLog.close = lambda _: time.sleep(10_000)  # type: ignore[method-assign]
    return run(OpenClipProgram, argv, Saboteur.install())
