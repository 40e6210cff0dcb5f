"""`training.main` beside `open_clip_train.main`: same shards, same seed, same loss at every step, same checkpoints.

`open_clip_reference` is open_clip's program with a seeded sample shuffle and without DDP's device_ids.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import open_clip
import pytest
import torch
from torch import Tensor

from support.both_programs import OURS, STEPS_PER_EPOCH, THEIRS, Case, Runs, checkpoint, scalars

ATTENTION_WIDTH = 32
CLIP, SIGLIP = Case("clip-1-1"), Case("siglip-1-1", loss="siglip")
CLIP_ON_TWO = Case("clip-2-1", ranks=2)
LOCAL = {"local_loss": True, "gather_with_grad": True}
ISOGCLR = Case("isogclr", loss="isogclr", flags={"isogclr_rho": 1.0})
CASES = [
    *(CLIP, CLIP_ON_TWO, SIGLIP, Case("siglip-2-1", loss="siglip", ranks=2)),
    *(
        Case(f"{loss}-{ranks}-2", loss=loss, ranks=ranks, flags={"accum_freq": 2})
        for loss in ("clip", "siglip")
        for ranks in (1, 2)
    ),
    Case("local-loss-2-1", ranks=2, flags=LOCAL),
    # In a worker process: open_clip's augmentation would draw from the generator of dropout, ours never does.
    Case("dropout-2-1", ranks=2, dropout=True, flags={"workers": 1}),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("parity"))


def with_a_gradient(name: str, value: Tensor) -> Tensor:
    """Without the bias of attention's keys: softmax does not see it, and Adam makes steps of rounding errors."""
    if name.endswith("key.bias"):
        return value[:0]
    if name.endswith("in_proj_bias"):
        return torch.cat([value[:ATTENTION_WIDTH], value[2 * ATTENTION_WIDTH :]])
    return value


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_step_and_the_checkpoint_are_those_of_open_clip(runs: Runs, case: Case) -> None:
    """Cases are named LOSS-RANKS-ACCUMULATION."""
    ours, theirs = runs.both(case)
    accumulation = case.flags.get("accum_freq", 1)
    tolerance = 1e-6 if accumulation == 1 else 1e-5
    for name in ("loss", "contrastive_loss", "lr", "scale"):
        found, expected = scalars(ours, name), scalars(theirs, name)
        assert len(found) == 2 * (-(-STEPS_PER_EPOCH // case.ranks) // accumulation)
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
    mine, other = (checkpoint(folder)["optimizer"] for folder in runs.both(CLIP))
    assert mine["param_groups"] == other["param_groups"]
    shapes = [
        {number: {name: value.shape for name, value in state.items()} for number, state in one["state"].items()}
        for one in (mine, other)
    ]
    assert shapes[0] == shapes[1]


@pytest.mark.slow
@pytest.mark.parametrize("case", [CLIP, CLIP_ON_TWO, SIGLIP], ids=lambda case: case.name)
def test_open_clip_creates_a_model_from_our_checkpoint(runs: Runs, case: Case) -> None:
    folder, _ = runs.both(case)
    config = runs.folder / f"{folder.name}.json"  # open_clip takes `pretrained` for models that it knows by name
    config.write_text(json.dumps(checkpoint(folder)["isogclr"]["model_config"]), encoding="utf-8")
    open_clip.add_model_config(config)
    model = open_clip.create_model(config.stem, pretrained=str(folder / "checkpoints" / "epoch_2.pt"))
    for name, value in checkpoint(folder)["state_dict"].items():
        assert torch.equal(model.state_dict()[name.removeprefix("module.")], value)
    saved = checkpoint(folder)["isogclr"]["preprocess_cfg"]
    assert saved == open_clip.get_model_preprocess_cfg(model)


def second_epoch(folder: Path, name: str) -> dict[int, float]:
    return {step: value for step, value in scalars(folder, name).items() if step >= STEPS_PER_EPOCH}


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(OURS, THEIRS), (THEIRS, OURS)], ids=["by-theirs", "by-ours"])
def test_a_run_of_one_program_is_finished_by_the_other(runs: Runs, first: str, second: str) -> None:
    begun = runs.both(CLIP)[(OURS, THEIRS).index(first)]
    resume = begun / "checkpoints" / "epoch_1.pt"
    finished = runs.run(second, CLIP, f"finished-by-{second}", resume=resume)
    assert min(scalars(finished, "loss")) == STEPS_PER_EPOCH
    for name in ("loss", "lr", "scale"):
        assert second_epoch(finished, name) == pytest.approx(second_epoch(begun, name), rel=1e-6, abs=0)


@pytest.mark.slow
def test_open_clip_goes_on_with_the_newest_checkpoint_of_our_run(runs: Runs) -> None:
    folder = runs.folder / "newest"
    shutil.copytree(runs.both(CLIP_ON_TWO)[0], folder)
    (folder / "checkpoints" / "epoch_2.pt").unlink()
    runs.run(THEIRS, CLIP, "newest", resume="latest")
    assert checkpoint(folder)["epoch"] == 2
    assert "resuming checkpoint" in (folder / "out.log").read_text(encoding="utf-8")


@pytest.mark.slow
def test_open_clip_goes_on_from_a_run_with_isogclr(runs: Runs) -> None:
    begun = runs.run(OURS, ISOGCLR, "isogclr-for-open-clip")
    _, theirs = runs.both(CLIP)
    assert set(checkpoint(begun)) == {*checkpoint(theirs), "isogclr"}
    resume = begun / "checkpoints" / "epoch_1.pt"
    finished = runs.run(THEIRS, CLIP, "clip-after-isogclr", resume=resume)
    assert list(scalars(finished, "loss")) == list(range(STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH))


@pytest.mark.slow
def test_isogclr_goes_on_from_a_run_of_open_clip(runs: Runs) -> None:
    _, theirs = runs.both(CLIP)
    resume = theirs / "checkpoints" / "epoch_1.pt"
    finished = runs.run(OURS, ISOGCLR, "isogclr-after-clip", resume=resume)
    assert list(scalars(finished, "loss")) == list(range(STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH))
    assert "has no state of samples" in (finished / "out.log").read_text(encoding="utf-8")
    assert checkpoint(finished)["epoch"] == 2
