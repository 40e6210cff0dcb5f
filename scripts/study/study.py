"""The study of docs/study.md, in one command. It fetches nothing: docs/study.md says how the shards are made.

    python scripts/study/study.py run --data /data --results docs/study/results.csv
    python scripts/study/study.py tables --results docs/study/results.csv --figures docs/study

Runs that the table of results has are not run again, and a run that was cut off goes on where it was: stop it
whenever you like. `--reduced` is a small version, about a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import memory_plan
import plan
import unimodal_plan
from analysis import best_settings
from grid import DataSet, Run
from training_runs import Results, execute

PUBLISHED = Path(__file__).resolve().parents[2] / "docs" / "study" / "results.csv"
METHODS = list(dict.fromkeys(name for one in plan.DATA_SETS.values() for name in plan.methods(one)))
REDUCED_PARTS, REDUCED_SEEDS = ["emoji-frozen"], (0, 1, 2)


def main() -> None:
    options = _options()
    results = Results(options.results)
    if options.command == "tables":
        from tables import write_all  # noqa: PLC0415 (matplotlib)

        write_all(results.rows, options.figures)
        return
    everything = REDUCED_PARTS if options.reduced else list(plan.DATA_SETS)
    names = options.part or everything
    unknown = [name for name in names if name not in plan.DATA_SETS]
    if unknown:
        raise SystemExit(f"unknown data sets {', '.join(unknown)}; there are {', '.join(plan.DATA_SETS)}")
    missing = [name for name in names if not (options.data / plan.DATA_SETS[name].folder).is_dir()]
    if missing:
        raise SystemExit(
            f"{options.data} has no shards for {', '.join(missing)}: docs/study.md says how to make them"
        )
    for name in names:
        _study(plan.DATA_SETS[name], results, options)
    from tables import summary  # noqa: PLC0415 (matplotlib)

    print("\nMean ± deviation of a seed (difference to CLIP, paired by seed, ± 95 % interval), in %")
    print(summary(results.rows))


def _study(data_set: DataSet, results: Results, options: argparse.Namespace) -> None:
    all_methods = plan.methods(data_set)
    methods = {name: one for name, one in all_methods.items() if not options.method or name in options.method}

    def run(runs: Iterable[Run]) -> None:
        chosen = [one for one in runs if not options.method or one.method in options.method]
        execute(chosen, results, options.data, options.work, options.jobs)

    if options.reduced:
        chosen = best_settings(Results(PUBLISHED).rows, data_set, methods)
        run(plan.comparison(data_set, chosen, REDUCED_SEEDS))
        return
    tuned_on = plan.DATA_SETS[data_set.tuned_on or data_set.name]
    run(plan.tuning(tuned_on))
    chosen = best_settings(results.rows, tuned_on, methods)
    run(plan.comparison(data_set, chosen))
    if data_set.task == unimodal_plan.TASK:
        run(unimodal_plan.untrained(data_set))
    if data_set.name in memory_plan.KNOB_SEEDS:
        run(memory_plan.knobs(data_set, best_settings(results.rows, tuned_on, {"sogclr": all_methods["sogclr"]})))
    if data_set.name == "emoji-frozen" and not options.method:
        run(plan.ablations(data_set, chosen))
        run(plan.without_memory(data_set, chosen))
        run(plan.less_data(data_set, chosen))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train and measure what is missing")
    tables = commands.add_parser("tables", help="tables and figures of what there is")
    for command in (run, tables):
        command.add_argument("--results", type=Path, required=True, help="one CSV for everything")
    run.add_argument("--data", type=Path, required=True, help="folder with a folder of shards for each data set")
    run.add_argument(
        "--work", type=Path, default=Path("study-runs"), help="for runs in progress (default: study-runs)"
    )
    run.add_argument("--part", nargs="+", metavar="DATA_SET", help="default: all; reduced: emoji-frozen")
    run.add_argument(
        "--method", nargs="+", choices=METHODS, help="rows of the table; default: all, and the ablations"
    )
    run.add_argument("--jobs", type=int, default=1, help="runs at a time, a thread each (default: 1)")
    run.add_argument("--reduced", action="store_true", help="the settings that the whole study chose, three seeds")
    tables.add_argument("--figures", type=Path, required=True, help="folder to write tables and figures to")
    return parser.parse_args()


if __name__ == "__main__":
    main()
