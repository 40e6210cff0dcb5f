"""`training.main`, in which something becomes infinite, as long as the learning rate is too high.

From the step DIVERGE_AT on, counted from 0, if the learning rate is above DIVERGE_ABOVE (default: always), on the
rank DIVERGE_RANK (default: all): with DIVERGE_KIND `gradient` one gradient becomes NaN, after DDP has reduced it,
with `moment` the squares that AdamW keeps of one parameter become infinite, which no loss ever shows, and with
`verdict` nothing happens but that the step is called bad. STOP_AT sends a SIGTERM from that step on.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from training import main as trainer


def main(argv: Sequence[str]) -> int:
    from training.steps import loop  # noqa: PLC0415
    from training.steps.optimization import Optimization  # noqa: PLC0415

    begin, step, is_bad = Optimization.begin, Optimization.step, loop.is_bad
    kind = os.environ.get("DIVERGE_KIND", "gradient")
    now, is_time = 0.0, False

    def remember(self: Optimization, schedule_step: float) -> None:
        nonlocal now, is_time
        begin(self, schedule_step)
        now, is_time = schedule_step, _is_time(self.lr, schedule_step)

    def poisoned(self: Optimization) -> bool:
        parameter = self.optimizer.param_groups[1]["params"][0]
        if is_time and kind == "gradient":
            parameter.grad.fill_(float("nan"))
        if is_time and kind == "moment":
            self.optimizer.state[parameter]["exp_avg_sq"].fill_(float("inf"))
        if now >= float(os.environ.get("STOP_AT", "inf")):
            os.kill(os.getpid(), signal.SIGTERM)
        return step(self)

    def sentenced(*arguments: Any) -> Any:
        return is_bad(*arguments) | (is_time and kind == "verdict")

    Optimization.begin, Optimization.step = remember, poisoned  # type: ignore[method-assign]
    loop.is_bad = sentenced
    return trainer.main(argv)


def _is_time(lr: float, now: float) -> bool:
    is_addressed = os.environ.get("DIVERGE_RANK", os.environ.get("RANK")) == os.environ.get("RANK")
    is_high = lr > float(os.environ.get("DIVERGE_ABOVE", "0"))
    return is_addressed and is_high and now >= float(os.environ["DIVERGE_AT"])
