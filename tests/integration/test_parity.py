"""`training.main` beside `open_clip_train.main`: same shards, same seed, same loss at every step, same checkpoints.

`open_clip_reference` is open_clip's program with a seeded sample shuffle and without DDP's device_ids.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from micro_run import Job, arguments, start, write_model, write_shards

OURS, THEIRS = "training.main", "open_clip_reference"
SIZES = (20, 12, 30, 26)  # uneven: on two ranks, one begins again while the other is not through
# Torch's crop may leave no pixel out: it still draws numbers, but they change nothing.
WHOLE_IMAGE = ("scale=(1.0,1.0)", "ratio=(1.0,1.0)")
ATTENTION_WIDTH = 32
STEPS_PER_EPOCH = 11


@dataclass(frozen=True)
class Case:
    """A set-up in which both programs run."""

    loss: str = "clip"
    ranks: int = 1
    accumulation: int = 1
    dropout: bool = False
    flags: tuple[str, ...] = ()
    workers: int = 0

    @property
    def name(self) -> str:
        parts = (self.loss, f"{self.ranks}-ranks", f"accum-{self.accumulation}", *self.flags)
        return "-".join([*parts, *(["dropout"] if self.dropout else [])])


@dataclass
class Runs:
    """Runs of both programs, each made once."""

    folder: Path
    data: str = ""
    models: dict[bool, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.data = write_shards(self.folder / "shards", SIZES)
        self.models = {kind: write_model(self.folder / f"model-{kind}", 0.1 * kind) for kind in (False, True)}

    def both(self, case: Case) -> tuple[Path, Path]:
        """The folders of finished runs of two epochs, ours and theirs, that were made side by side."""
        folders = {module: self.folder / f"{module}-{case.name}" for module in (OURS, THEIRS)}
        jobs = [self._start(module, case, path.name) for module, path in folders.items() if not path.exists()]
        for job in jobs:
            assert job.wait() == [0] * case.ranks, job.text
        return folders[OURS], folders[THEIRS]

    def run(self, module: str, case: Case, name: str, **flags: Any) -> Path:
        job = self._start(module, case, name, **flags)
        assert job.wait() == [0] * case.ranks, job.text
        return self.folder / name

    def _start(self, module: str, case: Case, name: str, **flags: Any) -> Job:
        siglip: dict[str, Any] = {"siglip": case.loss == "siglip"} if module == THEIRS else {"loss": case.loss}
        line = arguments(
            self.models[case.dropout],
            self.data,
            self.folder,
            name,
            epochs=2,
            seed=3,
            warmup=3,
            workers=case.workers,
            accum_freq=case.accumulation,
            train_num_samples=sum(SIZES),
            aug_cfg=WHOLE_IMAGE,
            report_to="tensorboard",
            **dict.fromkeys(case.flags, True),
            **siglip,
            **flags,
        )
        return start(line, self.folder / "output", ranks=case.ranks, module=module)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("parity"))


def scalars(folder: Path, name: str) -> dict[int, float]:
    """What a run has logged at each step, as TensorBoard keeps it: float32, not the digits of the log."""
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {event.step: event.value for event in events.Scalars(f"train/{name}")}


def checkpoint(folder: Path, epoch: int = 2) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(folder / "checkpoints" / f"epoch_{epoch}.pt", weights_only=True)
    return content


def with_a_gradient(name: str, value: Tensor) -> Tensor:
    """Without the bias of attention's keys: softmax does not see it, and Adam makes steps of rounding errors."""
    if name.endswith("key.bias"):
        return value[:0]
    if name.endswith("in_proj_bias"):
        return torch.cat([value[:ATTENTION_WIDTH], value[2 * ATTENTION_WIDTH :]])
    return value


LOCAL = ("local_loss", "gather_with_grad")
CASES = [
    *(Case(loss, ranks, accum) for loss in ("clip", "siglip") for ranks in (1, 2) for accum in (1, 2)),
    Case(ranks=2, flags=LOCAL),
    # In a worker process: open_clip's augmentation would draw from the generator of dropout, ours never does.
    Case(ranks=2, dropout=True, workers=1),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_step_and_the_checkpoint_are_those_of_open_clip(runs: Runs, case: Case) -> None:
    ours, theirs = runs.both(case)
    tolerance = 1e-6 if case.accumulation == 1 else 1e-5
    for name in ("loss", "contrastive_loss", "lr", "scale"):
        found, expected = scalars(ours, name), scalars(theirs, name)
        assert len(found) == 2 * (-(-STEPS_PER_EPOCH // case.ranks) // case.accumulation)
        assert found == pytest.approx(expected, rel=tolerance, abs=0)
    assert len(set(scalars(ours, "loss").values())) == len(scalars(ours, "loss"))
    mine, other = checkpoint(ours), checkpoint(theirs)
    assert set(mine) == {*other, "isogclr"}
    assert (mine["epoch"], list(mine["state_dict"])) == (other["epoch"], list(other["state_dict"]))
    for name, value in other["state_dict"].items():
        found = with_a_gradient(name, mine["state_dict"][name])
        torch.testing.assert_close(found, with_a_gradient(name, value), rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_the_optimizer_of_a_checkpoint_is_that_of_open_clip(runs: Runs) -> None:
    mine, other = (checkpoint(folder)["optimizer"] for folder in runs.both(Case()))
    assert mine["param_groups"] == other["param_groups"]
    assert mine["state"].keys() == other["state"].keys()
    for number, state in other["state"].items():
        assert {name: value.shape for name, value in state.items()} == {
            name: value.shape for name, value in mine["state"][number].items()
        }


@pytest.mark.slow
@pytest.mark.parametrize("case", [Case(), Case(ranks=2), Case("siglip")], ids=lambda case: case.name)
def test_open_clip_creates_a_model_from_our_checkpoint(runs: Runs, case: Case) -> None:
    folder, _ = runs.both(case)
    config = runs.folder / f"{folder.name}.json"  # open_clip takes `pretrained` for models that it knows by name
    config.write_text(json.dumps(checkpoint(folder)["isogclr"]["model_config"]), encoding="utf-8")
    open_clip.add_model_config(config)
    model = open_clip.create_model(config.stem, pretrained=str(folder / "checkpoints" / "epoch_2.pt"))
    for name, value in checkpoint(folder)["state_dict"].items():
        assert torch.equal(model.state_dict()[name.removeprefix("module.")], value)


def second_epoch(folder: Path, name: str = "loss") -> dict[int, float]:
    return {step: value for step, value in scalars(folder, name).items() if step >= STEPS_PER_EPOCH}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(OURS, THEIRS), (THEIRS, OURS)], ids=["by-theirs", "by-ours"])
def test_a_run_of_one_program_is_finished_by_the_other(runs: Runs, first: str, second: str) -> None:
    begun = runs.both(Case())[(OURS, THEIRS).index(first)]
    resume = begun / "checkpoints" / "epoch_1.pt"
    finished = runs.run(second, Case(), f"finished-by-{second}", resume=resume)
    assert min(scalars(finished, "loss")) == STEPS_PER_EPOCH
    for name in ("loss", "lr", "scale"):
        assert second_epoch(finished, name) == pytest.approx(second_epoch(begun, name), rel=1e-6, abs=0)


@pytest.mark.slow
def test_open_clip_goes_on_with_the_newest_checkpoint_of_our_run(runs: Runs) -> None:
    folder = runs.folder / "newest"
    shutil.copytree(runs.both(Case(ranks=2))[0], folder)
    (folder / "checkpoints" / "epoch_2.pt").unlink()
    runs.run(THEIRS, Case(), "newest", resume="latest")
    assert checkpoint(folder)["epoch"] == 2
    assert "resuming checkpoint" in (folder / "out.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_open_clip_goes_on_from_a_run_with_isogclr(runs: Runs) -> None:
    begun = runs.run(OURS, Case("isogclr"), "isogclr-for-open-clip", isogclr_rho=1.0)
    _, theirs = runs.both(Case())
    assert set(checkpoint(begun)) == {*checkpoint(theirs), "isogclr"}
    resume = begun / "checkpoints" / "epoch_1.pt"
    finished = runs.run(THEIRS, Case(), "clip-after-isogclr", resume=resume)
    assert list(scalars(finished, "loss")) == list(range(STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH))


@pytest.mark.slow
def test_isogclr_goes_on_from_a_run_of_open_clip(runs: Runs) -> None:
    _, theirs = runs.both(Case())
    resume = theirs / "checkpoints" / "epoch_1.pt"
    finished = runs.run(OURS, Case("isogclr"), "isogclr-after-clip", resume=resume, isogclr_rho=1.0)
    assert list(scalars(finished, "loss")) == list(range(STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH))
    assert "has no state of samples" in (finished / "out.log").read_text(encoding="utf-8")
    assert checkpoint(finished)["epoch"] == 2
