"""`make bench`: every benchmark, or those named: `python -m benchmarks loss temperatures`."""

from __future__ import annotations

import importlib
import sys
import warnings

from benchmarks import measure

PARTS = ("loss", "views", "temperatures", "index", "store", "data", "retrieval", "end_to_end")


def main(names: list[str]) -> int:
    """Run, print the tables, write the JSON."""
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"there is no benchmark {', '.join(unknown)}; choose from {', '.join(PARTS)}", file=sys.stderr)
        return 2
    warnings.filterwarnings("ignore", category=FutureWarning)  # open_clip's use of torch.distributed.nn
    for name in names or PARTS:
        part = importlib.import_module(f"benchmarks.{name}")
        print(f"## {name}\n", flush=True)
        results = part.run()
        print(part.table(results))
        print(f"\nwritten to {measure.save(name, results)}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
