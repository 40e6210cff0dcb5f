"""`python -m training.unimodal`: learn from pictures alone, two views of each; with identity and state per picture.

Exit codes: 0 finished; 1 failed; 2 wrong command line; 75 stopped on SIGTERM or SIGUSR1 after a commit: the same
command with `--resume latest` goes on; 76 diverged: the same command would diverge again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from training.signals import StopRequest


def main(argv: Sequence[str] | None = None) -> int:
    """As `training.main`: handlers stand before torch is imported."""
    stop = StopRequest.install()
    from training.run import run  # noqa: PLC0415 (see above)
    from training.views.view_program import UnimodalProgram  # noqa: PLC0415

    return run(UnimodalProgram, sys.argv[1:] if argv is None else argv, stop)


if __name__ == "__main__":
    sys.exit(main())
