"""What a run goes on from: a generation, an `epoch_N.pt` of ours or of open_clip, or bare weights."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from isogclr.config import PRESETS
from isogclr.distributed import Messages
from isogclr.errors import ConfigError, DamagedFileError, TrainingError
from isogclr.losses import SampleState
from isogclr.models.checkpoint_files import UnreadableCheckpointError, bare_name, read_checkpoint
from isogclr.models.epoch_files import newest_epoch_file
from isogclr.state import STORE_SNAPSHOT, Generation, generations, latest, load_generation
from isogclr.state.manifest import verify_file
from training.commits.commit import CHECKPOINT, FORMAT, GENERATIONS, LATEST_CHECKPOINT
from training.commits.rollback import TRAINING
from training.data.position import Position
from training.ranks.agreement import refuse_together
from training.steps.progress import Progress


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on.

    Args:
        source: for the log.
        checkpoint: content of the `.pt` file.
        training: content of training.json; None if only a `.pt` file is there.
        snapshot: of the store; None if there is none, and samples start as never visited.
    """

    source: Path
    checkpoint: dict[str, Any]
    training: Mapping[str, Any] | None
    snapshot: Path | None

    def release(self) -> None:
        """Let go of weights and optimizer, which are loaded: gigabytes a rank."""
        for name in ("state_dict", "optimizer"):
            self.checkpoint.pop(name, None)

    @property
    def is_training(self) -> bool:
        """Bare weights have no epoch: training starts at the beginning."""
        return "epoch" in self.checkpoint

    def progress(self, steps_per_epoch: int) -> Progress:
        """Epoch, step and shared state; the position of a rank is in `position`.

        Args:
            steps_per_epoch: of the run that goes on. If it differs, as much of the epoch is done as was before.
        """
        if not self.is_training:
            return Progress(steps_per_epoch=steps_per_epoch)
        facts = self.checkpoint.get("isogclr", {})
        shared = facts.get("shared")
        state = None
        if shared is not None:
            state = SampleState(
                {name: value for name, value in shared.items() if name != "visits"}, shared["visits"]
            )
        if self.training is None:
            epoch = int(self.checkpoint["epoch"])
            step = int(facts.get("step", epoch * steps_per_epoch))  # open_clip counts them so
            return Progress(epoch, step, steps_per_epoch=steps_per_epoch, shared=state)
        where = self.training
        done = where["done"]
        if where["steps_per_epoch"] != steps_per_epoch:
            done *= steps_per_epoch / where["steps_per_epoch"]
        return Progress(where["epoch"], where["step"], done, steps_per_epoch, shared=state)

    def position(self, rank: int) -> Position | None:
        """In the data, of the rank with this number when the commit was made; None between epochs."""
        if self.training is None or rank >= len(self.training["ranks"]):
            rank = 0
        if self.training is None or self.training["ranks"][rank]["position"] is None:
            return None
        return Position.from_json(self.training["ranks"][rank]["position"])

    def generators(self, rank: int) -> Mapping[str, Any] | None:
        """The random generators of this rank; None for a rank that did not exist."""
        if self.training is None or rank >= len(self.training["ranks"]):
            return None
        found: Mapping[str, Any] = self.training["ranks"][rank]["generators"]
        return found


def find(resume: str | None, checkpoints: Path | None, messages: Messages) -> Resumed | None:
    """What `--resume` means. Rank 0 looks, so that all ranks go on from the same; every rank loads."""
    if resume is None:
        return None
    found: str | None = None
    if messages.ranks.rank == 0:
        place = _latest(checkpoints) if resume == "latest" else _named(Path(resume))
        found = None if place is None else str(place)
        if place is None:
            logging.info(f"No latest resume checkpoint found in {checkpoints}.")
    found = messages.from_first(found)
    if found is None:
        return None
    refuse_together(messages, None if Path(found).exists() else _not_seen(found))
    return _load(Path(found), is_first=messages.ranks.rank == 0)


def _not_seen(place: str) -> str:
    return (
        f"{socket.gethostname()}: found nothing at {place}, expected what rank 0 resumes from: all nodes restore "
        "from it; put --logs on a file system that they share"
    )


def _latest(checkpoints: Path | None) -> Path | None:
    if checkpoints is None:
        raise ConfigError(["--resume latest needs --logs: without it nothing was stored"])
    generation = latest(checkpoints / GENERATIONS)
    if generation is not None:
        return generation.path
    newest = newest_epoch_file(checkpoints)
    if newest is not None:
        return newest
    most_recent = checkpoints / LATEST_CHECKPOINT
    return most_recent if most_recent.exists() else None


def _named(path: Path) -> Path:
    """A generation, a run or its checkpoints, or a file."""
    if (path / "manifest.json").is_file() or path.is_file():
        return path
    for folder in (path, path / "generations", path / "checkpoints" / "generations"):
        generation = latest(folder) if folder.is_dir() else None
        if generation is not None:
            return generation.path
    raise ConfigError(
        [f"--resume {path} is neither a checkpoint nor has it generations: name epoch_N.pt, a run or `latest`"]
    )


def _load(place: Path, is_first: bool) -> Resumed:
    if place.is_dir():
        return _load_generation(load_generation(place), is_first)
    checkpoint = load_checkpoint(place)
    generation = _generation_of(place, checkpoint)
    if generation is not None:
        if is_first:
            _check_unchanged(place, generation)
        return _load_generation(generation, is_first)
    if checkpoint.get("isogclr", {}).get("loss") in ("isogclr", "sogclr"):
        raise TrainingError(
            f"{place}: found a checkpoint without its generation beside it, expected one in "
            f"{place.parent / 'generations'}: the state of the samples is there, not in the .pt file; bring it "
            f"back, or {_new_run(checkpoint)}"
        )
    return Resumed(place, checkpoint, None, None)


def _generation_of(path: Path, checkpoint: Mapping[str, Any]) -> Generation | None:
    """The generation that a `.pt` file of ours was committed with."""
    identity = checkpoint.get("isogclr", {}).get("commit")
    root = path.parent / "generations"
    if identity is None or not root.is_dir():
        return None
    return next((one for one in generations(root) if one.manifest.info.get("commit") == identity), None)


def _check_unchanged(path: Path, generation: Generation) -> None:
    """Weights come from the generation: whoever has written others into the file would wait for them in vain."""
    try:
        verify_file(path, generation.manifest.files[CHECKPOINT])
    except DamagedFileError:
        raise TrainingError(
            f"{path}: found another content than what was committed with it, expected a file that nobody has "
            f"changed: go on from the commit itself with --resume {generation.path}, or start a new run from "
            "the changed weights"
        ) from None


def _load_generation(generation: Generation, is_first: bool) -> Resumed:
    """Every file is compared with its checksum; the store does that itself while it restores the snapshot.

    The first rank looks at all of them, the others at the small one: they would stumble over it before it can tell.
    """
    for name, entry in generation.manifest.files.items():
        if name == TRAINING or (is_first and name != STORE_SNAPSHOT):
            verify_file(generation.path / name, entry)
    training = json.loads((generation.path / TRAINING).read_text(encoding="utf-8"))
    if training["format"] != FORMAT:
        raise TrainingError(
            f"{generation.path}: found training.json of format {training['format']}, expected {FORMAT}: it was "
            "written by another release of isogclr; resume with that one"
        )
    checkpoint = load_checkpoint(generation.path / CHECKPOINT)
    return Resumed(generation.path, checkpoint, training, generation.path / STORE_SNAPSHOT)


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a `.pt` file, without running code from it."""
    if not path.is_file():
        raise ConfigError([f"--resume {path}: there is no such file"])
    try:
        return read_checkpoint(path)
    except UnreadableCheckpointError as error:
        raise DamagedFileError(
            f"{path}: found a file that torch can not load ({error.reason}), expected a checkpoint: it was cut "
            "short, or is something else; resume from an earlier one"
        ) from None


def check_loss(resumed: Resumed, loss: str) -> None:
    """A run goes on with the loss that it has begun with; what open_clip has written does not say which."""
    before = resumed.checkpoint.get("isogclr", {}).get("loss", loss)
    if before != loss:
        raise TrainingError(
            f"{resumed.source}: found a commit of --loss {before}, expected one of --loss {loss}: resume with the "
            f"loss it was trained with, or {_new_run(resumed.checkpoint)}"
        )


def check_program(resumed: Resumed, kind: str | None, command: str) -> None:
    """A run goes on with the program that it has begun with; what open_clip has written is `training.main`'s.

    Args:
        kind: what the checkpoints of this program say they are; None for those of pictures and captions.
    """
    before = _kind(resumed.checkpoint)
    if before != kind and (resumed.is_training or before is not None):
        raise TrainingError(
            f"{resumed.source}: found a commit of {before or 'image-text'} training, expected one of "
            f"{kind or 'image-text'} training, which is what {command} does: resume with the program that "
            "it was begun with"
        )


def _kind(checkpoint: Mapping[str, Any]) -> str | None:
    found: str | None = checkpoint.get("isogclr", {}).get("kind")
    return found


def _new_run(checkpoint: Mapping[str, Any]) -> str:
    """The other way out; only one program starts from the weights of others."""
    return "start a new run" + ("" if _kind(checkpoint) else " from its weights with --pretrained")


def warn_of_other_options(resumed: Resumed, loss: str, options: Mapping[str, Any]) -> None:
    """Options of a loss may change at a resume, if they are meant to: one line for each says so."""
    before = resumed.checkpoint.get("isogclr", {}).get("loss_config", {})
    changed = [name for name in sorted(before.keys() & options.keys()) if before[name] != options[name]]
    for name in changed:  # a release may add options
        logging.warning(f"{name} of --loss {loss} has changed at this resume: {before[name]} → {options[name]}")
    paper = PRESETS["paper"].items()
    if loss == "isogclr" and "temperature_optimizer" in changed and paper <= before.items():
        logging.warning(
            "The run began with the recipe of the authors' code, the default of earlier releases: give "
            "--isogclr-preset paper to go on with it"
        )


def refuse_broken(resumed: Resumed, broken: Sequence[str]) -> None:
    """A commit of ours is finite; those of earlier releases, and what others have written, need not be."""
    if broken:
        raise TrainingError(
            f"{resumed.source}: found {len(broken)} tensors that are not finite, {broken[0]} among them, expected "
            "none: the run had diverged before; resume from an earlier commit, or start again"
        )


def load_weights(resumed: Resumed, model: nn.Module) -> None:
    """Put the model where the checkpoint left it."""
    weights = resumed.checkpoint["state_dict"] if resumed.is_training else resumed.checkpoint
    own_names = {bare_name(name): name for name in model.state_dict()}  # the model may be wrapped, too
    bare = {bare_name(name): value for name, value in weights.items()}
    try:
        model.load_state_dict({own_names.get(name, name): value for name, value in bare.items()})
    except RuntimeError as error:
        flags = "--backbone, --stem and --projector" if _kind(resumed.checkpoint) else "--model"
        raise TrainingError(
            f"{resumed.source}: its weights do not fit the model ({' '.join(str(error).split())[:500]}); use the "
            f"{flags} that it was trained with"
        ) from None
