"""The only importer of open_clip_train. What of it we use stands here; a contract test pins it.

Its functions take the `args` of its command line, so that object lives here and in `params`, nowhere else.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import threading
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from open_clip_train import data as _data
from open_clip_train import distributed as _distributed
from open_clip_train import file_utils as _file_utils
from open_clip_train import logger as _logger
from open_clip_train import params as _params
from open_clip_train import precision as _precision
from open_clip_train import scheduler as _scheduler
from open_clip_train import train as _train
from torch import nn
from torch.optim import Optimizer

from isogclr.csv_table import is_table
from isogclr.errors import ConfigError, DataError
from isogclr.progress_bars import bars_of_others
from isogclr.shard_index.addresses import local_path
from training.full_disk import LogFile

SCHEDULERS = ("cosine", "const", "const-cooldown")
# What open_clip_train.main gives the model factory for SigLIP.
SIGLIP_MODEL_OPTIONS: dict[str, Any] = {"init_logit_scale": float(np.log(10)), "init_logit_bias": -10}
MAX_LOG_LOGIT_SCALE = math.log(100)  # open_clip clamps there after every step

Schedule = Callable[[float], float]  # learning rate at a step, also set in the optimizer


def parse_args(arguments: Sequence[str]) -> Namespace:
    """open_clip_train.main's own command line. A refusal of its parser comes without its long usage."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return cast(Namespace, _params.parse_args(list(arguments)))
    except SystemExit:
        raise ConfigError([said.getvalue().rpartition("error: ")[2].strip()]) from None
    except (ValueError, SyntaxError) as error:  # its only flag that raises
        raise ConfigError(
            [f"--aug-cfg can not be read ({error}): write name=value, as in scale=(0.9,1.0)"]
        ) from None


def help_text() -> str:
    """What `python -m open_clip_train.main --help` says about its options."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        _params.parse_args(["--help"])
    return text.getvalue().partition("\n\n")[2]  # without its usage


def is_accelerated(args: Namespace) -> bool:
    """Whether the device that was asked for is there and is no CPU."""
    kind = torch.device(args.device).type
    is_available, is_known = _distributed.is_device_available(kind)
    return kind != "cpu" and bool(is_available or not is_known)  # open_clip tries those it does not know


def ranks_of_environment() -> int:
    """How many processes the launcher has announced."""
    return int(_distributed.world_info_from_env()[2])


def tarfile_to_samples(
    urls: Iterable[Mapping[str, Any]], handler: Callable[[Exception], bool]
) -> Iterator[dict[str, Any]]:
    """open_clip's reader of tar shards: samples with `__url__` and `__key__`.

    The handler is told what can not be read, and says whether to go on.
    """
    return cast(Iterator[dict[str, Any]], _data.tarfile_to_samples_nothrow(urls, handler=handler))


def expand_urls(urls: str, weights: str | None = None) -> tuple[list[str], list[float] | None]:
    """The shards of a pattern, and the weight of each if upsampling factors are given.

    `isogclr.shard_index.patterns` has the rules a second time, for commands that do without open_clip_train.
    """
    return cast(tuple[list[str], list[float] | None], _data.expand_urls(urls, weights))


def setup_logging(path: Path | None, level: int) -> None:
    """open_clip's log format, to terminal and file. It sets all loggers to the level; torch's say too much."""
    _logger.setup_logging(None, level)
    if path is not None:
        file = LogFile(path)
        file.setFormatter(logging.root.handlers[-1].formatter)
        logging.root.addHandler(file)
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch."):
            logging.getLogger(name).setLevel(logging.WARNING)


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """A factory of the context in which the model runs."""
    return cast(
        Callable[[], AbstractContextManager[Any]], _precision.get_autocast(precision, device_type=device.type)
    )


@dataclass(frozen=True)
class Cooldown:
    """The end of a `const-cooldown` schedule."""

    steps: float
    power: float
    end: float


def learning_rate(
    name: str, optimizer: Optimizer, base: float, warmup: int, steps: int, cooldown: Cooldown | None
) -> Schedule:
    """open_clip's schedule of this name."""
    if name == "cosine":
        return cast(Schedule, _scheduler.cosine_lr(optimizer, base, warmup, steps))
    if name == "const":
        return cast(Schedule, _scheduler.const_lr(optimizer, base, warmup, steps))
    assert cooldown is not None
    return cast(
        Schedule,
        _scheduler.const_lr_cooldown(optimizer, base, warmup, steps, cooldown.steps, cooldown.power, cooldown.end),
    )


@dataclass(frozen=True)
class Place:
    """Which process of the run this is, and where it computes."""

    device: torch.device
    rank: int
    local_rank: int
    world_size: int

    @property
    def is_first(self) -> bool:
        return self.rank == 0


def start_device(device: str) -> Place:
    """Join the process group, if the environment names one, and choose the device: for a program that has no
    arguments of open_clip's."""
    return OpenClip(Namespace(device=device, dist_url=None, dist_backend=None)).start_device()


class OpenClip:
    """open_clip_train's parts that need its arguments.

    Args:
        args: from `parse_args`; becomes this object's own.
    """

    def __init__(self, args: Namespace) -> None:
        self._args = args
        args.distill = False

    @property
    def meets_by_environment(self) -> bool:
        """Whether ranks find each other by MASTER_ADDR and MASTER_PORT."""
        return self._args.dist_url in (None, "env://")

    def start_device(self) -> Place:
        """Join the process group, if the environment names one, and choose the device."""
        device = _distributed.init_distributed_device(self._args)
        args = self._args
        return Place(device, args.rank, args.local_rank, args.world_size)

    def arguments(self) -> dict[str, Any]:
        """All arguments by name, as they stand in params.txt."""
        return dict(vars(self._args))

    @property
    def evaluates(self) -> bool:
        """Whether there is something to measure after an epoch."""
        return any((self._args.val_data, self._args.imagenet_val, self._args.imagenet_v2))

    def place_run(self, name: str, checkpoints: Path | None) -> None:
        """Tell open_clip's functions where the run lives."""
        self._args.name = name
        self._args.checkpoint_path = str(checkpoints)
        self._args.save_logs = checkpoints is not None and self._args.rank == 0
        self._args.wandb = False  # we log what they return

    def evaluation_data(self, transforms: tuple[Any, Any], tokenizer: Any) -> dict[str, Any]:
        """Loaders of the validation data and ImageNet, as far as they were asked for. What is missing is said now,
        not after the first epoch."""
        self._check_evaluation_data()
        args = Namespace(**{**vars(self._args), "train_data": None, "dataset_type": self._validation_type()})
        return cast(dict[str, Any], _data.get_data(args, transforms, tokenizer=tokenizer))

    def _check_evaluation_data(self) -> None:
        args = self._args
        wanted = {"--imagenet-val": [args.imagenet_val] if args.imagenet_val else []}
        if args.val_data:
            is_one_file = self._validation_type() == "csv" or is_table(args.val_data)
            wanted["--val-data"] = [args.val_data] if is_one_file else expand_urls(args.val_data)[0]
        problems = []
        for flag, urls in wanted.items():
            paths = [path for path in map(local_path, urls) if path is not None]
            missing = [path for path in paths if not Path(path).exists()]
            if missing:
                problems.append(
                    f"{flag}: {len(missing):,} of {len(urls):,} do not exist, the first is {missing[0]}"
                )
        if problems:
            raise ConfigError(problems)

    def _validation_type(self) -> str:
        """Synthetic validation data would be asked for without a path; open_clip takes the type of the training."""
        return "auto" if self._args.dataset_type == "synthetic" else self._args.dataset_type

    def evaluate(
        self, model: nn.Module, data: Mapping[str, Any], epoch: int, writer: Any, tokenizer: Any
    ) -> dict[str, float]:
        """open_clip's validation: loss, retrieval recall, zero-shot ImageNet. On rank 0; nothing elsewhere."""
        try:
            with bars_of_others():
                metrics = _train.evaluate(model, data, epoch, self._args, tb_writer=writer, tokenizer=tokenizer)
        except (RuntimeError, ValueError) as error:
            if "non-empty list" not in str(error):  # it joins the features of all batches
                raise
            raise DataError(
                f"--val-data {self._args.val_data} has given no sample: expected images and captions as in the "
                "training data"
            ) from error
        return {name: float(value) for name, value in metrics.items()}

    def start_remote_sync(self, run: Path) -> Callable[[], None] | None:
        """Copy the run to `--remote-sync` from time to time; returns what ends it, with a last copy.

        In a thread: open_clip's process would inherit our handler of SIGTERM, and outlive a run that fails.
        """
        args = self._args
        if args.remote_sync is None or args.rank != 0:
            return None
        source, target = str(run), f"{args.remote_sync.rstrip('/')}/{args.name}"
        if not _file_utils.remote_sync(source, target, args.remote_sync_protocol):
            raise RuntimeError(f"--remote-sync {args.remote_sync}: the first copy failed; see the message above")
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(args.remote_sync_frequency):
                _file_utils.remote_sync(source, target, args.remote_sync_protocol)

        thread = threading.Thread(target=repeat, name="remote-sync", daemon=True)
        thread.start()

        def finish() -> None:
            ended.set()
            thread.join()
            _file_utils.remote_sync(source, target, args.remote_sync_protocol)

        return finish
