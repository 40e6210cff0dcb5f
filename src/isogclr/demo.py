"""`isogclr demo`: trains the tiny model on the emoji inside the package, with iSogCLR and with CLIP.

It starts `python -m training.main`, as a user would, once per loss and at the same time: so small a model makes
better use of two cores as two trainings than as two threads. A demo that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isogclr import demo_data
from isogclr.errors import TrainingError
from isogclr.progress_bars import progress_bar

POLL_SECONDS = 0.2
LOSSES: Mapping[str, Sequence[str]] = {
    "isogclr": (
        "--isogclr-preset",
        "paper",
        "--isogclr-rho",
        "0.5",
        "--isogclr-temperature-init",
        "0.07",
        "--isogclr-temperature-rate",
        "0.003",
    ),
    "clip": (),
}
METRICS = tuple(f"{direction}_R@{rank}" for direction in ("image_to_text", "text_to_image") for rank in (1, 5, 10))


@dataclass(frozen=True)
class Options:
    """How long, where, and from which seed."""

    folder: Path
    epochs: int
    seed: int


def train_all(options: Options, say: Callable[[str], None]) -> list[Path]:
    """Train one run per loss, all at the same time; returns their folders."""
    say(
        f"Training on {demo_data.TRAIN_SAMPLES:,} emoji of three art styles, testing on {demo_data.TEST_SAMPLES:,} "
        f"of a fourth, {options.epochs} epochs with each loss. Stop it whenever you like: the same command goes on."
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    with _started(options) as processes:
        _follow(processes, options)
    return [options.folder / loss for loss in LOSSES]


def command_line(loss: str, flags: Sequence[str], options: Options) -> list[str]:
    """What a user would type."""
    return [
        *(sys.executable, "-m", "training.main", "--loss", loss, *flags, "--model", "isogclr-tiny"),
        *("--train-data", demo_data.TRAIN_DATA, "--val-data", demo_data.TEST_DATA, "--workers", "1"),
        *("--batch-size", "64", "--epochs", str(options.epochs), "--lr", "1e-3", "--wd", "0.1", "--warmup", "60"),
        *("--precision", "fp32", "--seed", str(options.seed), "--log-every-n-steps", "5", "--val-frequency", "2"),
        *("--logs", str(options.folder), "--name", loss, "--save-frequency", "0", "--resume", "latest"),
    ]


@contextmanager
def _started(options: Options) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """A training per loss, by its name. When the block is left, however that happens, none runs any more."""
    # A core per training decodes images, and threads that wait for a core cost more than they give.
    threads = max(1, (os.cpu_count() or 2) // len(LOSSES) - 1)
    environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
    processes = {}
    try:
        for loss, flags in LOSSES.items():
            with _log(loss, options).open("a", encoding="utf-8") as output:
                processes[loss] = subprocess.Popen(
                    command_line(loss, flags, options), stdout=output, stderr=subprocess.STDOUT, env=environment
                )
        yield processes
    finally:
        for process in processes.values():
            process.terminate()  # it commits what it has
        for process in processes.values():
            process.wait()


def _log(loss: str, options: Options) -> Path:
    return options.folder / f"{loss}.txt"


def _complaint(loss: str, code: int, log: Path) -> str:
    tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
    return f"training with --loss {loss} ended with code {code}; {log} ends with:\n{tail}"


def _follow(processes: Mapping[str, subprocess.Popen[bytes]], options: Options) -> None:
    """One progress bar from the metrics of all runs, until all have ended. TrainingError if one fails."""
    with progress_bar(total=options.epochs * len(processes), desc="training", bar_format=_BAR) as bar:
        codes: dict[str, int | None] = dict.fromkeys(processes)
        while None in codes.values():
            time.sleep(POLL_SECONDS)
            codes = {loss: process.poll() for loss, process in processes.items()}
            _show(bar, {loss: read_metrics(options.folder / loss / "metrics.jsonl") for loss in processes})
            for loss, code in codes.items():
                if code:
                    raise TrainingError(_complaint(loss, code, _log(loss, options)))


_BAR = "{desc} {percentage:3.0f}% |{bar}| [{elapsed}<{remaining}]{postfix}"


def _show(bar: Any, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    trained = {loss: _last(some, "train", "epoch") or 0.0 for loss, some in records.items()}
    bar.n = min(sum(trained.values()), bar.total)
    recall = {loss: _last(some, "val", "image_to_text_R@10") for loss, some in records.items()}
    measured = [f"{loss} {100 * value:.1f} %" for loss, value in recall.items() if value is not None]
    bar.set_postfix_str(f"R@10: {', '.join(measured)}" if measured else "", refresh=False)
    bar.refresh()


def _last(records: Sequence[Mapping[str, Any]], kind: str, name: str) -> float | None:
    return next((float(record[name]) for record in reversed(records) if record["kind"] == kind), None)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a metrics.jsonl that may be growing."""
    if not path.exists():
        return []
    return [
        json.loads(line)
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True)
        if line.endswith("\n")
    ]


def recall_table(runs: Sequence[Path]) -> str:
    """Recall on the held-out style, one line per run, from what the runs have measured."""
    lines = [
        "Recall on the held-out style, in %:      image → text            text → image",
        "                                     R@1    R@5   R@10      R@1    R@5   R@10",
    ]
    for run in runs:
        tested = [record for record in read_metrics(run / "metrics.jsonl") if record["kind"] == "val"]
        values = [f"{100 * tested[-1][name]:6.2f}" for name in METRICS]
        lines.append(f"  --loss {run.name:26}" + " ".join(values[:3]) + "   " + " ".join(values[3:]))
    chance = [f"{100 * rank / demo_data.TEST_SAMPLES:6.2f}" for rank in (1, 5, 10)]
    lines.append(f"  {'chance':33}" + " ".join(chance) + "   " + " ".join(chance))
    return "\n".join(lines)
