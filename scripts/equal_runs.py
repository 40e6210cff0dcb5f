"""Does this tree train as another commit does, bit for bit?

    python scripts/equal_runs.py --before 71e78a4 --work /tmp/equal_runs

Trains `clip`, `sogclr` and `isogclr` on the embedded data, on 1 and on 2 ranks, with accumulation 1 and 2, for two
epochs: with the sources of the other commit and with those of this tree. Compares parameters, optimizer, random
generators, every byte of the rows and every logged loss. One run of the other commit is stopped in the middle of an
epoch and goes on with this tree; it must come to the same end as if nothing had happened.

Runs that are complete in the work folder are not made again, so a comparison that was interrupted goes on; runs of
this tree are made again with `--again`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE / "tests"))
from support.run_state import assert_same_end, last_commit, losses  # noqa: E402 (after the path to it)

LOSSES = ("clip", "sogclr", "isogclr")
RANKS = (1, 2)
ACCUMULATION = (1, 2)
EPOCHS = 2
STOP_AT_STEP = 40  # of 61 in an epoch
OPTIONS = {
    "isogclr": (
        "--isogclr-preset",
        "paper",  # the default of the commits before
        "--isogclr-rho",
        "0.5",
        "--isogclr-temperature-init",
        "0.07",
        "--isogclr-temperature-rate",
        "0.003",
    ),
    "sogclr": ("--sogclr-temperature", "0.07"),
    "clip": (),
}
STOPPED = 75


@dataclass(frozen=True)
class Case:
    """One set-up; its name is the name of its runs."""

    loss: str
    ranks: int
    accumulation: int

    @property
    def name(self) -> str:
        return f"{self.loss}-{self.ranks}x{self.accumulation}"

    def command(self, data: Path, logs: Path) -> list[str]:
        batch = 64 // self.ranks // self.accumulation
        return [
            *(sys.executable, "-m", "training.main", "--loss", self.loss, *OPTIONS[self.loss]),
            *("--model", "isogclr-tiny", "--train-data", str(data / "train-{000..007}.tar"), "--workers", "1"),
            *("--batch-size", str(batch), "--accum-freq", str(self.accumulation), "--epochs", str(EPOCHS)),
            *("--lr", "1e-3", "--wd", "0.1", "--warmup", "20", "--precision", "fp32", "--log-every-n-steps", "1"),
            *("--logs", str(logs), "--name", self.name, "--resume", "latest"),
        ]


class Tree:
    """Sources to train with."""

    def __init__(self, sources: Path, logs: Path, data: Path) -> None:
        self._sources, self.logs, self._data = sources, logs, data

    def folder(self, case: Case) -> Path:
        return self.logs / case.name

    def is_complete(self, case: Case) -> bool:
        return (self.folder(case) / "checkpoints" / f"epoch_{EPOCHS}.pt").is_file()

    def start(self, case: Case, *more: str) -> list[subprocess.Popen[bytes]]:
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(case.ranks):
            environment = {**os.environ, "PYTHONPATH": str(self._sources), "OMP_NUM_THREADS": "1"}
            if case.ranks > 1:
                environment |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case.ranks)}
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            self.logs.mkdir(parents=True, exist_ok=True)
            with (self.logs / f"{case.name}-{rank}.txt").open("ab") as output:
                processes.append(
                    subprocess.Popen(
                        [*case.command(self._data, self.logs), *more],
                        env=environment,
                        cwd=self.logs,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        return processes

    def train(self, case: Case) -> None:
        if self.is_complete(case):
            return
        ended(self.start(case), 0)

    def train_until_stopped(self, case: Case) -> None:
        """Commit step 40, then SIGTERM: code 75."""
        processes = self.start(case, "--save-every-n-steps", str(STOP_AT_STEP))
        generations = self.folder(case) / "checkpoints" / "generations"
        while not list(generations.glob("generation-*")):
            if any(process.poll() is not None for process in processes):
                raise SystemExit(f"{self.folder(case)}: ended before step {STOP_AT_STEP}")
            time.sleep(0.05)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        ended(processes, STOPPED)


def ended(processes: list[subprocess.Popen[bytes]], expected: int) -> None:
    codes = [process.wait() for process in processes]
    if set(codes) != {expected}:
        raise SystemExit(f"{processes[0].args}: found exit codes {codes}, expected {expected}; see the .txt files")


def sources_of(commit: str, work: Path) -> Path:
    """The sources of a commit, outside of this repository's own work tree."""
    target = work / "sources"
    if not target.exists():
        partial = work / "sources.partial"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "-C", str(HERE), "archive", commit, "src"], check=True, capture_output=True
        ).stdout
        subprocess.run(["tar", "-x", "-C", str(partial)], input=archive, check=True)
        partial.rename(target)
    return target / "src"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", required=True, metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for sources and runs")
    parser.add_argument("--again", action="store_true", help="forget the runs of this tree")
    parser.add_argument("--only-before", action="store_true", help="make the runs of the other commit, no more")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these set-ups, such as isogclr-2x2")
    options = parser.parse_args()
    work = options.work.resolve()
    data = sources_of(options.before, work) / "isogclr" / "demo_data"
    before = Tree(work / "sources" / "src", work / "before", data)
    stopped = Tree(work / "sources" / "src", work / "stopped", data)
    after = Tree(HERE / "src", work / "after", data)
    resumed = Tree(HERE / "src", work / "resumed", data)
    cases = [Case(*one) for one in product(LOSSES, RANKS, ACCUMULATION)]
    interrupted = [Case("isogclr", 1, 1), Case("isogclr", 2, 2)]
    if options.only is not None:
        cases, interrupted = ([case for case in some if case.name in options.only] for some in (cases, interrupted))
    if options.again:
        for tree in (after, resumed):
            shutil.rmtree(tree.logs, ignore_errors=True)
    for case in cases:
        before.train(case)
    for case in interrupted:
        if not last_step(stopped.folder(case)):
            shutil.rmtree(stopped.folder(case), ignore_errors=True)
            stopped.train_until_stopped(case)
    if options.only_before:
        return 0
    for case in cases:
        after.train(case)
        report(case.name, after.folder(case), before.folder(case))
    for case in interrupted:
        if not resumed.is_complete(case):
            resumed.logs.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(resumed.folder(case), ignore_errors=True)
            shutil.copytree(stopped.folder(case), resumed.folder(case), copy_function=shutil.copy2)
            step = last_step(resumed.folder(case))
            resumed.train(case)
        else:
            step = last_step(stopped.folder(case))
        report(f"{case.name}, stopped before at step {step} and resumed", resumed.folder(case), before.folder(case))
    return 0


def last_step(run: Path) -> int:
    """Of the newest commit; 0 without one."""
    found = sorted((run / "checkpoints" / "generations").glob("generation-*"))
    return int(last_commit(run).training["step"]) if found else 0


def report(name: str, found: Path, expected: Path) -> None:
    assert_same_end(found, expected)
    commit, steps = last_commit(found), losses(found)
    numbers = sum(value.numel() for value in commit.checkpoint["state_dict"].values())
    moments = sum(
        value.numel()
        for state in commit.checkpoint["optimizer"]["state"].values()
        for value in state.values()
        if hasattr(value, "numel")
    )
    print(
        f"{name}: equal: {numbers:,} parameters, {moments:,} numbers of the optimizer, "
        f"{commit.rows.nbytes:,} bytes of rows, {len(steps):,} logged losses, the last {steps[max(steps)][0]!r}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
