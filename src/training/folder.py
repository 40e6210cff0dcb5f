"""The folder of a run, laid out as open_clip's, and what is written into it at the start."""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import platform
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import isogclr
import training
from isogclr.distributed import Messages
from isogclr.durable import replace_file
from isogclr.errors import TrainingError
from isogclr.state.faults import storage_errors
from training import full_disk
from training import open_clip_bridge as bridge
from training.settings import ProgramSettings

_PACKAGES = ("isogclr", "torch", "torchvision", "open_clip_torch", "webdataset", "timm", "transformers", "numpy")
_FAILED_START = "failed-start-"


@dataclass(frozen=True)
class RunFolder:
    """Where a run lives.

    Args:
        name: of the run.
        path: None if nothing is to be stored (`--logs none`).
        scratch: for the live state and an index that nobody asked to keep.
    """

    name: str
    path: Path | None
    scratch: Path

    @property
    def checkpoints(self) -> Path | None:
        return None if self.path is None else self.path / "checkpoints"


class Start:
    """A run until its first step. If it fails before, its name is free again; what it has written is kept apart.

    Everything moves, not only the log: an index of the wrong data would stand in the way of the next start. Whoever
    is killed moves nothing, and two runs that start at once never share a name, because a log takes it at once.

    Args:
        path: of the run; None if nothing is stored.
        earlier: what was in the folder before; None if this rank keeps no log, or the run is an older one.
    """

    def __init__(self, path: Path | None, earlier: frozenset[str] | None) -> None:
        self._path = path
        self._earlier = earlier
        self.has_stepped: Callable[[], bool] = lambda: False

    def fail(self) -> None:
        """After everything is closed; the log goes on in its new place."""
        if self._path is None or self._earlier is None or self.has_stepped():
            return
        try:
            kept = _free_name(self._path)
            for entry in list(self._path.iterdir()):
                if entry.name not in self._earlier and not entry.name.startswith(_FAILED_START):
                    entry.rename(kept / entry.name)
        except OSError as error:
            logging.warning(f"{self._path}: what this start has written can not be moved ({error.strerror})")
            return
        logging.info(f"No step was taken: the name can be used again; what this start has written is in {kept}")


def _free_name(path: Path) -> Path:
    for number in itertools.count(1):
        kept = path / f"{_FAILED_START}{number}"
        if not kept.exists():
            kept.mkdir()
            return kept
    raise AssertionError


def open_folder(settings: ProgramSettings, place: bridge.Place, messages: Messages) -> tuple[RunFolder, Start]:
    """Create the folder and start to log, on all ranks. A run of the same name is refused, unless it is resumed."""
    name = messages.from_first(settings.run.name or _default_name(settings))
    level = logging.DEBUG if settings.run.debug else logging.INFO
    if settings.run.logs is None:
        bridge.setup_logging(None, level)
        scratch = messages.from_first(tempfile.mkdtemp(prefix="isogclr-") if place.is_first else None)
        if place.is_first:
            atexit.register(shutil.rmtree, scratch, ignore_errors=True)
        return RunFolder(name, None, Path(scratch)), Start(None, None)
    path = (settings.run.logs / name).absolute()
    logs = place.local_rank == 0 if settings.run.log_local else place.is_first
    log_file = path / (f"out-{place.rank}" if settings.run.log_local else "out.log")
    earlier = None
    if logs:
        earlier = _make_folder(path, log_file, is_resumed=settings.run.resume == "latest")
    messages.barrier()
    bridge.setup_logging(log_file if logs else None, level)
    logging.captureWarnings(True)
    full_disk.leave_to_main_thread()
    return RunFolder(name, path, path), Start(path, earlier)


def _make_folder(path: Path, log_file: Path, is_resumed: bool) -> frozenset[str] | None:
    """What was in it before, if it is the folder of a new run."""
    try:
        if log_file.exists() and not is_resumed:
            raise TrainingError(
                f"{path}: found the log of an earlier run, expected a new name; go on with it by --resume latest, "
                "or choose another --name"
            )
        is_new = not log_file.exists()
        earlier = frozenset(entry.name for entry in path.iterdir()) if path.is_dir() else frozenset()
        (path / "checkpoints").mkdir(parents=True, exist_ok=True)
        log_file.open("a", encoding="utf-8").close()
    except OSError as error:
        raise TrainingError(
            f"{path}: found no place for the run ({error.strerror}), expected a folder that can be written: choose "
            "another --logs or --name"
        ) from None
    return earlier if is_new else None


def _default_name(settings: ProgramSettings) -> str:
    """As open_clip names runs."""
    workers, batch = (settings.data.workers, settings.data.batch_size) if settings.data else (0, 0)
    parts = (
        datetime.now().strftime("%Y_%m_%d-%H_%M_%S"),
        f"model_{settings.model_name.replace('/', '-')}",
        f"lr_{settings.optimizer.lr}",
        f"b_{batch}",
        f"j_{workers}",
        f"p_{settings.precision}",
    )
    return "-".join(parts)


def versions() -> dict[str, str]:
    """Of everything that a result depends on."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def describe(folder: RunFolder, arguments: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """params.txt, as open_clip writes it, and config.json, for programs. On rank 0."""
    lines = [f"{name}: {arguments[name]}" for name in sorted(arguments)]
    logging.info("Params:")
    for line in lines:
        logging.info(f"  {line}")
    if folder.path is not None:
        with storage_errors(folder.path, "write params.txt and config.json"):
            replace_file(folder.path / "params.txt", ["".join(f"{line}\n" for line in lines).encode()])
            replace_file(folder.path / "config.json", [json.dumps(config, indent=1, default=str).encode()])


def configuration(settings: ProgramSettings, folder: RunFolder, world_size: int, **more: Any) -> dict[str, Any]:
    """Everything that a report or a later look at the run wants to know, as plain JSON."""
    data = settings.data
    return {
        "name": folder.name,
        "loss": settings.loss.name,
        "model": settings.model_name,
        "precision": settings.precision,
        "train_data": None if data is None else data.train_data,
        "dataset_type": None if data is None else data.kind,
        "seed": settings.run.seed,
        "batch_size": None if data is None else data.batch_size,
        "accumulation": None if data is None else data.accumulation,
        "workers": None if data is None else data.workers,
        "world_size": world_size,
        "epochs": settings.run.epochs,
        "settings": json.loads(json.dumps(asdict(settings), default=str)),
        "versions": versions(),
        **more,
    }


def copy_code(folder: RunFolder, is_resumed: bool) -> None:
    """`--copy-codebase`: what trained this model, for whoever wants to know later."""
    assert folder.path is not None
    target = folder.path / "code"
    if target.exists() and is_resumed:
        logging.info(f"Kept the copy of the code at {target}")
        return
    if target.exists():
        raise TrainingError(
            f"{target}: found an earlier copy of the code, expected none; leave --copy-codebase out"
        )
    for package in (isogclr, training):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, target / source.name, ignore=shutil.ignore_patterns("__pycache__", "*.tar"))
