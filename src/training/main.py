"""`python -m training.main`: open_clip's training program with sample identity and per-sample state.

Exit codes: 0 finished; 1 failed; 2 wrong command line; 75 stopped on SIGTERM or SIGUSR1 after a commit: the same
command with `--resume latest` goes on; 76 diverged: the same command would diverge again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from training.signals import StopRequest


def main(argv: Sequence[str] | None = None) -> int:
    """Handlers stand before torch is imported: a signal that comes during the seconds this takes must not kill."""
    stop = StopRequest.install()
    from training.open_clip_program import OpenClipProgram  # noqa: PLC0415 (see above)
    from training.run import run  # noqa: PLC0415

    return run(OpenClipProgram, sys.argv[1:] if argv is None else argv, stop)


if __name__ == "__main__":
    sys.exit(main())
