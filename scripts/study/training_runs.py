"""Run the trainer, measure what it made, write rows into one table. What the table has is not run again."""

from __future__ import annotations

import csv
import ctypes
import importlib
import json
import math
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock
from typing import Any

from grid import Run

from isogclr.progress_bars import progress_bar

COLUMNS = (
    *("part", "data_set", "method", "loss", "setting", "seed", "split", "epoch", "metric", "value"),
    *("seconds", "commit"),
)
IN_MEMORY = {"features": "feature_training", "icons": "icon_training"}  # tasks that need no shards, by module
KEY = ("part", "data_set", "method", "setting", "seed", "split")
# Processes are forked with torch loaded: importing it takes longer than some of the runs.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch", "open_clip", "open_clip_train.main", "transformers", "training.run", "training.open_clip_program"]
)


PR_SET_PDEATHSIG = 1  # of Linux


class Results:
    """The table: one row a number, appended run by run."""

    def __init__(self, path: Path) -> None:
        self.path, self._lock = path, Lock()
        self.rows: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="", encoding="utf-8") as stream:
                reader = csv.DictReader(stream)
                if tuple(reader.fieldnames or ()) != COLUMNS:
                    raise SystemExit(f"{path} has columns {reader.fieldnames}, expected {list(COLUMNS)}")
                self.rows = list(reader)
        self._done = {tuple(row[name] for name in KEY) for row in self.rows}

    def has(self, run: Run) -> bool:
        return run.key in self._done

    def add(self, run: Run, measured: Iterable[tuple[str, str, float]], seconds: float, commit: str) -> None:
        """All numbers of a run, in one write: a study that is killed has a run whole or not at all."""
        head = dict(zip(KEY, run.key, strict=True)) | {"loss": run.loss}
        tail = {"seconds": f"{seconds:.1f}", "commit": commit}
        rows = [
            head | {"epoch": epoch, "metric": metric, "value": f"{value:.6g}"} | tail
            for epoch, metric, value in measured
        ]
        with self._lock:
            new = not self.path.exists()
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerows(rows)
            self.rows += [{name: str(row[name]) for name in COLUMNS} for row in rows]
            self._done.add(run.key)


def execute(runs: Sequence[Run], results: Results, data: Path, work: Path, jobs: int) -> None:
    """Those runs that the table does not have yet; a run that was cut off goes on where it was."""
    unique = list({run.key: run for run in runs if not results.has(run)}.values())
    if not unique:
        return
    commit, title = _commit(), f"{unique[0].part}, {unique[0].data_set.name}"
    with progress_bar(total=len(unique), desc=title, unit="run") as bar, ThreadPoolExecutor(jobs) as pool:

        def one(run: Run) -> None:
            started = time.monotonic()
            folder = work / run.folder
            measured = _in_process(run, data / run.data_set.folder, work)
            results.add(run, measured, time.monotonic() - started, commit)
            shutil.rmtree(folder, ignore_errors=True)  # heads on features leave nothing
            bar.set_postfix_str(f"{run.method} {run.setting_text}: {_headline(run, measured)}")
            bar.update()

        try:
            for finished in as_completed([pool.submit(one, run) for run in unique]):
                finished.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # what runs may end; nothing new begins
            raise


def command_line(run: Run, data: Path, work: Path) -> list[str]:
    """The arguments of `training.main`."""
    flags: dict[str, Any] = {
        "loss": run.loss,
        "train_data": _pattern(data, "train", run.data_set.train_shards),
        "dataset_type": "webdataset",
        "seed": run.seed,
        "logs": work,
        "name": run.folder,
        "resume": "latest",
        "precision": "fp32",
        "device": "cpu",
        "workers": 0,
        "log_every_n_steps": 50,
        "save_frequency": 0,
        **run.flags,
    }
    if run.data_set.task == "retrieval":
        flags["val_data"] = _pattern(data, run.split)
        flags["val_frequency"] = max(1, flags["epochs"] // 5) if run.curve else flags["epochs"]
    if "init_temperature" in flags:
        flags["model"] = _with_start(
            flags["model"].replace("{folder}", str(data)), flags.pop("init_temperature"), work
        )
    line = []
    for name, value in flags.items():
        if value is False:
            continue
        values = value if isinstance(value, tuple) else () if value is True else (value,)
        line += [f"--{name.replace('_', '-')}", *(str(one).replace("{folder}", str(data)) for one in values)]
    return line


def _with_start(model: str, temperature: float, work: Path) -> str:
    """open_clip has no flag for where CLIP's own temperature starts; its model configuration has."""
    source = Path(model.removeprefix("local-dir:"))
    target = work / f"model-from-{temperature:g}"
    target.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        if file.is_file():
            shutil.copy(file, target)
    config = json.loads((source / "open_clip_config.json").read_text(encoding="utf-8"))
    config["model_cfg"]["init_logit_scale"] = math.log(1 / temperature)
    (target / "open_clip_config.json").write_text(json.dumps(config), encoding="utf-8")
    return f"local-dir:{target}"


def _pattern(data: Path, split: str, count: int | None = None) -> str:
    shards = sorted(data.glob(f"{split}-*.tar"))[:count]
    if not shards:
        raise SystemExit(f"{data} has no {split}-*.tar: docs/study.md says how the data sets are made")
    return "{" + ",".join(str(shard) for shard in shards) + "}" if len(shards) > 1 else str(shards[0])


def _in_process(run: Run, data: Path, work: Path) -> list[tuple[str, str, float]]:
    receiver, sender = CONTEXT.Pipe(duplex=False)
    work.mkdir(parents=True, exist_ok=True)
    log = work / f"{run.folder}.txt"
    process = CONTEXT.Process(target=_train_and_measure, args=(run, data, work, str(log), sender))
    process.start()
    sender.close()
    try:
        measured: list[tuple[str, str, float]] = receiver.recv()
    except EOFError:
        process.join()
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
        raise SystemExit(f"{run.key} failed with code {process.exitcode}; {log} ends with:\n{tail}") from None
    process.join()
    log.unlink()
    return measured


def _train_and_measure(run: Run, data: Path, work: Path, log: str, sender: Any) -> None:
    """In a process of its own, all its words in a file."""
    _end_with_the_study()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    import torch  # noqa: PLC0415

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if run.data_set.task in IN_MEMORY:
        trained = importlib.import_module(IN_MEMORY[run.data_set.task])
        sender.send(trained.train_and_measure(run, data))
        return
    if run.data_set.task == "unimodal":
        from unimodal_runs import train_and_measure  # noqa: PLC0415

        sender.send(train_and_measure(run, data, work))
        return
    from measure import measure  # noqa: PLC0415
    from training.main import main  # noqa: PLC0415

    if run.data_set.fixed_pictures:
        _remember_examples()
    code = main(command_line(run, data, work))
    if code != 0:
        sys.exit(code)
    sender.send(measure(run, data, work / run.folder))


def _end_with_the_study() -> None:
    """If the study is killed, its server of processes ends, and so does this one: by SIGTERM, so it commits."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _remember_examples() -> None:
    """Keep what was read and decoded: the trainer works sample by sample, which costs more than these networks do.

    Only for pictures that no augmentation changes: then an example is the same at every visit, and the run is the
    same, bit for bit.
    """
    from training.data.shards import ShardSource  # noqa: PLC0415
    from training.data.worker import Preparation  # noqa: PLC0415

    prepare, read = Preparation.prepare, ShardSource.read_shard
    examples: dict[int, Any] = {}
    shards: dict[str, list[Any]] = {}

    def remembered(self: Any, sample: Any, which: Any, drawn: int, tally: Any) -> Any:
        if sample.content is None or sample.row not in examples:
            found = prepare(self, sample, which, drawn, tally)
            if found is None:
                return None
            examples[sample.row] = found
        else:
            tally.usable += 1
        return examples[sample.row]

    def read_shard(self: Any, url: str, tally: Any) -> Iterator[Any]:
        if url not in shards:
            shards[url] = list(read(self, url, tally))
        yield from shards[url]

    Preparation.prepare = remembered  # type: ignore[method-assign]
    ShardSource.read_shard = read_shard  # type: ignore[method-assign]


def _headline(run: Run, measured: Sequence[tuple[str, str, float]]) -> str:
    values = [value for _, metric, value in measured if metric == run.data_set.metric]
    return f"{run.data_set.metric} {values[-1]:.2f} %" if values else ""


def _commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.strip() or "unknown"
