"""Commits: model, optimizer, random generators, data positions and the store appear together, or not at all.

RUN/checkpoints/generations/generation-00000012/
    checkpoint.pt     open_clip's keys plus `isogclr`; loads with weights_only
    training.json     where the run is: step, epoch, and for every rank its generators and its data position; its
                      rollbacks, if there were some
    state.snapshot    the store
    manifest.json     of all of them, with checksums
RUN/checkpoints/epoch_3.pt     a copy of the checkpoint.pt at the end of epoch 3, where open_clip puts it
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from isogclr.distributed import Messages
from isogclr.durable import copy_file, write_file
from isogclr.errors import TrainingError
from isogclr.models.epoch_files import epoch_file_name
from isogclr.state import STORE_SNAPSHOT, RowStore, generations, prune, remove_leftovers, write_generation
from isogclr.state.faults import storage_errors
from isogclr.state.generations import generation_folders
from training.commits.rollback import TRAINING, Rollbacks
from training.randomness import capture
from training.ranks.node import Node
from training.settings import RunSettings
from training.steps.progress import Progress
from training.store.node_comparison import check_stores_agree, forget_changes

CHECKPOINT = "checkpoint.pt"
GENERATIONS = "generations"
LATEST_CHECKPOINT = "epoch_latest.pt"
FORMAT = 1
Trained = Callable[[], Mapping[str, Any]]
KEPT_GENERATIONS = 2  # that are not kept for good: the newest, and the one before in case its disk forgets


@dataclass(frozen=True)
class RunFacts:
    """What a checkpoint says about its run: plain values."""

    name: str
    facts: Mapping[str, Any]


class Commits:
    """Commits of a run.

    Args:
        folder: RUN/checkpoints.
        settings: which of them to keep.
        messages: between all ranks.
        node: of this rank; the stores of all nodes must be equal at a commit.
        run: for the checkpoint files.
        device: whose generator is saved.
        rollbacks: of the run so far.
    """

    def __init__(
        self,
        folder: Path,
        settings: RunSettings,
        messages: Messages,
        node: Node,
        run: RunFacts,
        device: torch.device,
        rollbacks: Rollbacks,
    ) -> None:
        self._folder = folder
        self._root = folder / GENERATIONS
        self._settings = settings
        self._messages = messages
        self._node = node
        self._run = run
        self._device = device
        self._rollbacks = rollbacks
        self._newest: Path | None = None
        self.last_step: int | None = None  # that this process has committed
        if messages.ranks.rank == 0:
            remove_leftovers(self._root)
            for partial in folder.glob(".partial-epoch_*"):
                partial.unlink()
            self._publish_last()
            self._newest = _newest(self._root)

    def is_due(self, step: int) -> bool:
        """Whether a commit is asked for when this many steps are done."""
        every = self._settings.save_every_n_steps
        return every is not None and step % every == 0

    def commit(
        self,
        progress: Progress,
        trained: Trained,
        store: RowStore,
        *,
        completed_epoch: int | None = None,
        is_sound: bool = True,
    ) -> None:
        """All ranks: commit where the run is now. What the last step has changed must be in the store.

        Args:
            trained: gives the checkpoint's `state_dict`, `optimizer` and so on; asked on the first rank.
            completed_epoch: how many epochs are over, if one has just ended.
            is_sound: False while steps are not finite: then no earlier commit goes.
        """
        start = time.monotonic()
        position = None if progress.position is None else progress.position.to_json()
        everyone = self._messages.gather(
            {"step": progress.step, "generators": capture(self._device), "position": position}
        )
        steps = sorted({one["step"] for one in everyone})
        if len(steps) > 1:
            raise TrainingError(f"ranks are at steps {steps} at a commit, expected one step: this is a bug")
        store.drain()
        self._messages.barrier()
        check_stores_agree(store, self._messages, self._node)
        if self._messages.ranks.rank == 0:
            self._check_alone()
            keep = completed_epoch is not None and self._is_kept(completed_epoch)
            folder = self._write(progress, everyone, trained, store, completed_epoch, keep)
            if completed_epoch is not None:
                self._publish(folder / CHECKPOINT, completed_epoch)
            if is_sound:
                prune(self._root, newest=KEPT_GENERATIONS)
            logging.info(f"Committed step {progress.step} in {time.monotonic() - start:.3f} s: {folder}")
        self._messages.barrier()
        forget_changes(store, self._messages, self._node)
        self.last_step = progress.step

    def _check_alone(self) -> None:
        """The lock of the store does not reach a run on another machine, or one with another state directory."""
        newest = _newest(self._root)
        if newest != self._newest:
            raise TrainingError(
                f"{newest or self._root}: found a commit of another run, expected {self._newest or 'none'} to be "
                "the newest: two runs of one name are under way; end one of them, or give it another --name"
            )

    def _is_kept(self, completed_epoch: int) -> bool:
        """By open_clip's rule for `epoch_N.pt`."""
        if self._settings.delete_previous_checkpoint and completed_epoch != self._settings.epochs:
            return False
        return self._has_file(completed_epoch)

    def _has_file(self, completed_epoch: int) -> bool:
        every = self._settings.save_frequency
        return completed_epoch == self._settings.epochs or (every > 0 and completed_epoch % every == 0)

    def _write(
        self,
        progress: Progress,
        everyone: list[dict[str, Any]],
        trained: Trained,
        store: RowStore,
        completed_epoch: int | None,
        keep: bool,
    ) -> Path:
        identity = secrets.token_hex(8)
        epoch = progress.epoch if completed_epoch is None else completed_epoch
        info = {"commit": identity, "epoch": epoch, "is_end_of_epoch": completed_epoch is not None}
        ended = completed_epoch is not None
        ranks = [
            {"generators": one["generators"], "position": None if ended else one["position"]} for one in everyone
        ]
        training = {
            "format": FORMAT,
            "step": progress.step,
            "epoch": epoch,
            "done": 0.0 if ended else progress.done,
            "steps_per_epoch": progress.steps_per_epoch,
            "ranks": ranks,
            **self._rollbacks.to_json(),
        }
        with write_generation(self._root, step=progress.step, keep=keep, info=info) as folder:
            content = self._checkpoint(progress, trained, epoch, identity)
            _save(content, folder / CHECKPOINT)
            write_file(folder / TRAINING, [json.dumps(training).encode()])
            store.commit(folder / STORE_SNAPSHOT)
        self._newest = _newest(self._root)
        assert self._newest is not None
        return self._newest

    def _checkpoint(self, progress: Progress, trained: Trained, epoch: int, identity: str) -> dict[str, Any]:
        content: dict[str, Any] = {"epoch": epoch, "name": self._run.name, **trained()}
        shared = progress.shared
        content["isogclr"] = {
            **self._run.facts,
            "format": FORMAT,
            "commit": identity,
            "step": progress.step,
            "epoch": epoch,
            "shared": None if shared is None else {**shared.columns, "visits": shared.visits},
        }
        return content

    def _publish_last(self) -> None:
        """A crash between a commit and its files for open_clip has left it without them, or without some.

        A file that is newer than the checkpoint is of it, and stays: somebody may have made it smaller.
        """
        for generation in generations(self._root)[:1]:
            if generation.manifest.info.get("is_end_of_epoch"):
                checkpoint = generation.path / CHECKPOINT
                written = checkpoint.stat().st_mtime_ns
                self._publish(checkpoint, generation.manifest.info["epoch"], older_than=written)

    def _publish(self, checkpoint: Path, completed_epoch: int, older_than: int | None = None) -> None:
        """Write the files that open_clip would; those that are older than this (ns), if it is given."""
        names = [epoch_file_name(completed_epoch)] if self._has_file(completed_epoch) else []
        names += [LATEST_CHECKPOINT] if self._settings.save_most_recent else []
        for target in (self._folder / name for name in names):
            if older_than is None or not target.exists() or target.stat().st_mtime_ns < older_than:
                with storage_errors(target, "write a checkpoint for open_clip"):
                    copy_file(checkpoint, target)
        if self._settings.delete_previous_checkpoint:
            (self._folder / epoch_file_name(completed_epoch - 1)).unlink(missing_ok=True)


def _newest(root: Path) -> Path | None:
    return next(iter(generation_folders(root)), None)


def _save(content: Mapping[str, Any], path: Path) -> None:
    """`torch.save`. Of a full disk it says "unexpected pos", and keeps the reason to itself."""
    try:
        with path.open("wb") as file:
            torch.save(content, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise OSError(*error.__context__.args) from error
        raise
