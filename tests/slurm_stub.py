"""What the launcher runs instead of a training, in tests of the launcher: says how it was called, and ends."""

from __future__ import annotations

import os
import sys
import time


def main() -> int:
    """STUB_CODES: exit codes by rank; `sleep` never ends by itself."""
    rank = int(os.environ["SLURM_PROCID"])
    line = " ".join(f"<{one}>" for one in sys.argv[1:])
    print(f"stub at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} called with {line}", flush=True)
    codes = os.environ.get("STUB_CODES", "0").split()
    code = codes[rank % len(codes)]
    if code == "sleep":
        time.sleep(600)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
