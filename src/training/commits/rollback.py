"""Going back: which commit a diverged run can go on from, and that commit once more with a lower learning rate.

A commit holds the weights after its step, and the first that tries them is the step after it. If that step is not
finite, it never will be, whatever the learning rate: the same weights meet the same samples. Such a commit is set
aside, so that `--resume latest` finds the one before.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from isogclr.durable import fsync_directory, write_file
from isogclr.state import Generation, generations, write_generation
from isogclr.state.generations import generation_folders

TRAINING, ROLLBACKS = "training.json", "rollbacks"
SET_ASIDE = "diverged-"


@dataclass(frozen=True)
class Rollbacks:
    """What a run has gone back so far; in training.json of every commit after the first time.

    Args:
        count: of rollbacks.
        lr_factor: what they have left of the learning rate.
        lr: `--lr` that the factor is of. Whoever resumes with another one has chosen, and gets that.
    """

    count: int = 0
    lr_factor: float = 1.0
    lr: float | None = None

    @classmethod
    def of(cls, training: Mapping[str, Any] | None, lr: float | None) -> Rollbacks:
        """Those of a commit, as far as they hold for this `--lr`."""
        kept = None if training is None else training.get(ROLLBACKS)
        if kept is None:
            return cls(lr=lr)
        found = cls(**kept)
        if found.lr != lr:
            logging.info(f"--lr is {lr}, not {found.lr} as before: it is taken whole, rollbacks are counted anew")
            return cls(lr=lr)
        logging.info(f"Rolled back {found.count} times: the learning rate is {found.lr_factor:g} of --lr {lr}")
        return found

    def once_more(self, factor: float) -> Rollbacks:
        return replace(self, count=self.count + 1, lr_factor=self.lr_factor * factor)

    def to_json(self) -> dict[str, Any]:
        """What training.json says; nothing if the run has never gone back."""
        return {ROLLBACKS: asdict(self)} if self.count else {}


def last_tried(root: Path, first_bad: int | None) -> Generation | None:
    """The newest commit that a run can go on from, when all steps from `first_bad` on were not finite.

    Args:
        root: folder of all generations.
        first_bad: counted as commits count steps; None if no step was bad, and every commit will do.
    """
    found = generations(root)
    if first_bad is None:
        return found[0] if found else None
    return next((one for one in found if one.step + 1 < first_bad), None)


def set_aside_after(generation: Generation) -> list[Path]:
    """Take the name from all commits after this one; their files stay, for somebody to look at."""
    moved = []
    for later in generations(generation.path.parent):
        if later.number > generation.number:
            target = _free(later.path.with_name(SET_ASIDE + later.path.name))
            later.path.rename(target)
            moved.append(target)
    if moved:
        fsync_directory(generation.path.parent)
    return moved


def _free(path: Path) -> Path:
    """Numbers of generations come again after a rollback."""
    number, found = 2, path
    while found.exists():
        found, number = path.with_name(f"{path.name}-{number}"), number + 1
    return found


def commit_again(generation: Generation, rollbacks: Rollbacks) -> Path:
    """The same commit once more, as the newest, with the learning rate from here on: a crash can not forget it."""
    root = generation.path.parent
    info = {**generation.manifest.info, "commit": secrets.token_hex(8), "is_end_of_epoch": False}
    with write_generation(root, step=generation.step, info=info) as folder:
        for name in generation.manifest.files:
            shutil.copyfile(generation.path / name, folder / name)
        training = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
        (folder / TRAINING).unlink()
        write_file(folder / TRAINING, [json.dumps({**training, **rollbacks.to_json()}).encode()])
    return generation_folders(root)[0]
