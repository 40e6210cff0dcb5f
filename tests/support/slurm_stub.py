"""What the launcher runs instead of a training, in tests of the launcher: says how it was called, and ends."""

from __future__ import annotations

import os
import signal
import sys
import time


def main() -> int:
    """STUB_CODES: exit codes by rank; `sleep` never ends by itself, `signal` waits for SIGUSR1, once."""
    rank = int(os.environ["SLURM_PROCID"])
    line = " ".join(f"<{one}>" for one in sys.argv[1:])
    print(f"stub at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} called with {line}", flush=True)
    codes = os.environ.get("STUB_CODES", "0").split()
    code = codes[rank % len(codes)]
    if code == "sleep":
        time.sleep(600)
    if code == "signal":
        return 0 if "SLURM_RESTART_COUNT" in os.environ else _wait_for_signal()
    return int(code)


def _wait_for_signal() -> int:
    came: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: came.append(number))
    deadline = time.monotonic() + 90
    while not came and time.monotonic() < deadline:
        time.sleep(0.1)
    return 75 if came else 1


if __name__ == "__main__":
    sys.exit(main())
