"""`isogclr demo`: trains the tiny model on the emoji inside the package, with iSogCLR and with CLIP.

It starts `python -m training.main`, as a user would. A demo that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from isogclr import demo_data
from isogclr.errors import TrainingError

POLL_SECONDS = 0.2
LOSSES: Mapping[str, Sequence[str]] = {
    "isogclr": (
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
    """Train one run per loss, one after another; returns their folders."""
    say(
        f"Training on {demo_data.TRAIN_SAMPLES:,} emoji of three art styles, testing on {demo_data.TEST_SAMPLES:,} "
        f"of a fourth, {options.epochs} epochs with each loss. Stop it whenever you like: the same command goes on."
    )
    for loss, flags in LOSSES.items():
        _train(loss, flags, options)
    return [options.folder / loss for loss in LOSSES]


def command_line(loss: str, flags: Sequence[str], options: Options) -> list[str]:
    """What a user would type."""
    return [
        *(sys.executable, "-m", "training.main", "--loss", loss, *flags, "--model", "isogclr-tiny"),
        *("--train-data", demo_data.TRAIN_DATA, "--val-data", demo_data.TEST_DATA, "--workers", "1"),
        *("--batch-size", "64", "--epochs", str(options.epochs), "--lr", "1e-3", "--wd", "0.1", "--warmup", "60"),
        *("--precision", "fp32", "--seed", str(options.seed), "--log-every-n-steps", "5"),
        *("--logs", str(options.folder), "--name", loss, "--save-frequency", "0", "--resume", "latest"),
    ]


def _train(loss: str, flags: Sequence[str], options: Options) -> None:
    options.folder.mkdir(parents=True, exist_ok=True)
    log = options.folder / f"{loss}.txt"
    # One core decodes images, and threads that wait for a core cost more than they give.
    spare = max(1, (os.cpu_count() or 2) - 1)
    environment = {"OMP_NUM_THREADS": str(spare), **os.environ}
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(
            command_line(loss, flags, options), stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            _follow(loss, process, options)
        except BaseException:
            process.terminate()  # it commits what it has
            process.wait()
            raise
    if process.returncode != 0:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise TrainingError(
            f"training with --loss {loss} ended with code {process.returncode}; {log} ends with:\n{tail}"
        )


def _follow(loss: str, process: subprocess.Popen[bytes], options: Options) -> None:
    """A progress bar from the run's own metrics."""
    path = options.folder / loss / "metrics.jsonl"
    with tqdm(total=options.epochs, desc=f"--loss {loss:8}", unit="epoch", bar_format=_BAR) as bar:
        while process.poll() is None:
            _show(bar, path)
            time.sleep(POLL_SECONDS)
        _show(bar, path)


_BAR = "{desc} {percentage:3.0f}% |{bar}| {n:.1f} of {total} epochs [{elapsed}<{remaining}]{postfix}"


def _show(bar: Any, path: Path) -> None:
    records = read_metrics(path)
    trained = [record for record in records if record["kind"] == "train"]
    if trained:
        bar.n = min(trained[-1]["epoch"], bar.total)
    tested = [record for record in records if record["kind"] == "val"]
    if tested:
        bar.set_postfix_str(f"R@10 {100 * tested[-1]['image_to_text_R@10']:.1f} %", refresh=False)
    bar.refresh()


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
