"""Whole training runs: `training.main --loss isogclr` against `open_clip_train.main`; a commit; a resume."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import measure

ROUNDS = 3
BATCH, EPOCHS = 64, 2
RESUME_EPOCH_SHARE = 0.75
MODEL = {
    "embed_dim": 128,
    "vision_cfg": {"image_size": 48, "layers": 4, "width": 192, "head_width": 32, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 128, "heads": 4, "layers": 3},
}


def run() -> dict:
    """About fifteen minutes on two cores."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model").mkdir()
        (folder / "model" / "open_clip_config.json").write_text(json.dumps({"model_cfg": MODEL}), encoding="utf-8")
        return {
            "batch": BATCH,
            "throughput": _throughput(folder),
            "commit": _commit(folder),
            "resume": _resume(folder),
        }


def _throughput(folder: Path) -> dict:
    """Samples a second of each program; ratios within a round."""
    contenders = {
        "open_clip_train, clip": ("open_clip_train.main", []),
        "training.main, clip": ("training.main", ["--loss", "clip"]),
        "training.main, isogclr": ("training.main", ["--loss", "isogclr", "--isogclr-rho", "2"]),
    }
    rounds: list[dict[str, float]] = []
    for number in range(ROUNDS):
        found = {}
        for name, (module, flags) in contenders.items():
            run_name = f"{module}-{flags[-1] if flags else 'clip'}-{number}"
            _train(module, folder, run_name, *flags, "--save-frequency", "0")
            found[name] = BATCH / _step_seconds(folder / run_name)
        rounds.append(found)
    baseline = "open_clip_train, clip"
    return {name: measure.spread([one[name] / one[baseline] for one in rounds]) for name in contenders}


def _commit(folder: Path) -> dict:
    """Seconds of a commit over seconds of a step, in one run."""
    _train(
        "training.main", folder, "commit", "--loss", "isogclr", "--isogclr-rho", "2", "--save-every-n-steps", "10"
    )
    text = (folder / "commit" / "out.log").read_text(encoding="utf-8")
    seconds = [float(found) for found in re.findall(r"Committed step \d+ in ([\d.]+) s", text)]
    step = _step_seconds(folder / "commit")
    return {"over_a_step": measure.spread([one / step for one in seconds])}


def _resume(folder: Path) -> dict:
    """Time from the start of an epoch to batch k: trained, and after a resume that replays it undecoded."""
    flags = ("--loss", "isogclr", "--isogclr-rho", "2", "--log-every-n-steps", "1")
    _train("training.main", folder, "whole", *flags)
    steps = len(_train_lines(folder / "whole")) // EPOCHS
    target = round(RESUME_EPOCH_SHARE * steps)
    _train("training.main", folder, "resumed", *flags, "--save-every-n-steps", str(target), stop_after=target)
    trained = _seconds_to(folder / "resumed", target)
    _train("training.main", folder, "resumed", *flags, "--resume", "latest")
    return {
        "batch": target,
        "over_training_to_it": _seconds_to(folder / "resumed", target + 1, from_start=True) / trained,
    }


def _train(module: str, logs: Path, name: str, *flags: str, stop_after: int | None = None) -> None:
    data = Path(__file__).parents[1] / "src" / "isogclr" / "demo_data"
    command = [
        *(
            sys.executable,
            "-m",
            module,
            "--model",
            f"local-dir:{logs / 'model'}",
            "--logs",
            str(logs),
            "--name",
            name,
        ),
        *("--train-data", f"{data}/train-{{000..007}}.tar", "--train-num-samples", "3904", "--workers", "1"),
        *("--batch-size", str(BATCH), "--epochs", str(EPOCHS), "--precision", "fp32", "--warmup", "10"),
        *("--log-every-n-steps", "10", "--device", "cpu", *flags),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = logs / f"{name}.txt"
    with log.open("a", encoding="utf-8") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
        if stop_after is not None:
            while f"Committed step {stop_after} " not in log.read_text(encoding="utf-8") and process.poll() is None:
                time.sleep(0.05)
            process.kill()
            process.wait()
        elif process.wait() != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{log.read_text(encoding='utf-8')[-2000:]}")


def _step_seconds(run_folder: Path) -> float:
    """Median of the log's windows; the first of each epoch holds the start of the data workers."""
    windows = re.findall(r"Train Epoch: \d+ \[.*?\((\d+)%\)\].*? Batch \(t\): ([\d.]+)", _log(run_folder))
    return statistics.median(float(seconds) for percent, seconds in windows if int(percent) > 5)


def _log(run_folder: Path) -> str:
    return (run_folder / "out.log").read_text(encoding="utf-8")


def _train_lines(run_folder: Path) -> list[dict]:
    lines = (run_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == "train"]


def _seconds_to(run_folder: Path, step: int, from_start: bool = False) -> float:
    """From the (last) start of training to the end of a step, which is counted from 1."""
    lines = (run_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    starts = [record["time"] for record in records if record["kind"] == "start"]
    ends = [record["time"] for record in records if record["kind"] == "train" and record["step"] == step - 1]
    return ends[-1] - (starts[-1] if from_start else starts[0])


def table(results: dict) -> str:
    """Markdown."""
    lines = ["| program | samples per second, × open_clip_train |", "|---|---|"]
    for name, found in results["throughput"].items():
        lines.append(f"| {name} | {found['median']:.3f} ({found['min']:.3f}–{found['max']:.3f}, n={found['n']}) |")
    commit, resume = results["commit"]["over_a_step"], results["resume"]
    lines += [
        "",
        f"A commit takes as long as {commit['median']:.1f} steps ({commit['min']:.1f}–{commit['max']:.1f}, "
        f"n={commit['n']}).",
        f"To batch {resume['batch']} after a resume: {resume['over_training_to_it']:.2f} of the time of training.",
    ]
    return "\n".join(lines)
