"""A run that diverges: noticed by all ranks, nothing of it committed, an exit code of its own, a way back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from isogclr import demo_data
from isogclr.state import Generation, generations
from support.micro_run import Job, arguments, metrics, run, write_model
from support.run_state import assert_same_end, last_commit
from support.shard_writing import write_noise_shards
from training.commits.finiteness import not_finite

STOPPED, DIVERGED = 75, 76


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"), dropout=0.1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """24 steps of 4."""
    return write_noise_shards(tmp_path_factory.mktemp("data"), [16] * 6)


def diverging(model: str, data: str, folder: Path, name: str, expected: int, ranks: int = 1, **flags: Any) -> Job:
    variables = {key: str(flags.pop(key)) for key in list(flags) if key.isupper()}
    options = {"batch_size": 4, "resume": "latest", "lr_scheduler": "const", **flags}
    return run(
        arguments(model, data, folder / "logs", name, **options),
        folder,
        ranks=ranks,
        expected=expected,
        module="saboteurs.diverging",
        environment=variables,
    )


def commits(run_folder: Path) -> list[Generation]:
    """All that are there, newest first, each of them finite."""
    found = generations(run_folder / "checkpoints" / "generations")
    for one in found:
        assert not_finite(torch.load(one.path / "checkpoint.pt", weights_only=True)) == []
    return found


def said(job: Job) -> str:
    """The one message about it."""
    (line,) = [line for line in job.text.splitlines() if "The run has diverged" in line]
    assert "Traceback" not in job.text
    return line


@pytest.mark.slow
def test_a_learning_rate_far_too_high(tmp_path: Path) -> None:
    """Stopped, then resumed with --lr 1e6: it used to commit NaN over all that was good, and to end with 0."""
    options = {
        **{"batch_size": 16, "train_num_samples": 384, "save_every_n_steps": 3, "save_frequency": 0},
        **{"loss": "isogclr", "isogclr_rho": 1.0, "resume": "latest", "max_bad_steps": 6},
    }
    logs, path = tmp_path / "logs", tmp_path / "logs" / "run"

    def train(lr: float, expected: int, module: str = "training.main", **environment: str) -> Job:
        line = arguments("isogclr-tiny", demo_data.TRAIN_DATA, logs, "run", lr=lr, **options)
        return run(line, tmp_path, expected=expected, module=module, environment=environment)

    train(1e-3, STOPPED, "saboteurs.stopping", STOP_AT="8")
    stopped_at = last_commit(path).training["step"]
    message = said(train(1e6, DIVERGED))
    (kept, *_) = commits(path)
    assert kept.step >= stopped_at
    assert f"the last sound commit is of step {kept.step}, {kept.path}" in message
    assert "loss nan, learning rate" in message
    assert "go on from there by --resume latest, with a lower --lr" in message
    assert not (path / "checkpoints" / "epoch_1.pt").exists()
    train(1e-3, 0)  # what the message says
    assert [one.step for one in commits(path)] == [24, 21]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "loss"), [(1, "clip"), (2, "isogclr")])
def test_going_back_is_resuming_by_hand(ranks: int, loss: str, model: str, data: str, tmp_path: Path) -> None:
    """Bit for bit. With two ranks only the second one is hit at first: the first has finite weights, and still does
    not commit them."""
    sabotage = {"DIVERGE_RANK": 1} if ranks > 1 else {}
    options: dict[str, Any] = {
        **{"DIVERGE_AT": 6, "DIVERGE_ABOVE": 0.0007, **sabotage},
        **{"loss": loss, "batch_size": 4 // ranks, "save_every_n_steps": 1, "save_frequency": 0},
        **{"max_bad_steps": 3, "ranks": ranks, "isogclr_rho": 1.0 if loss == "isogclr" else None},
    }
    by_hand = tmp_path / "logs" / "by-hand"
    message = said(diverging(model, data, tmp_path, "by-hand", DIVERGED, **options))
    assert "4 steps in a row, 7 to 10" in message  # the limit is known one step later, on all ranks
    assert "The last finite step was 6; the last sound commit is of step 5" in message
    assert [one.step for one in commits(by_hand)] == [5]
    aside = [path.name for path in (by_hand / "checkpoints" / "generations").glob("diverged-*")]
    assert aside == ["diverged-generation-00000006"]  # of step 6: finite, but the step after it is not
    diverging(model, data, tmp_path, "by-hand", 0, **options, lr=0.0005)

    back = tmp_path / "logs" / "back"
    job = diverging(model, data, tmp_path, "back", 0, **options, on_divergence="rollback")
    assert "Rollback 1 of 3: going back to step 5 with 0.5 of --lr" in said(job)
    assert_same_end(back, by_hand)
    assert last_commit(back).training["rollbacks"] == {"count": 1, "lr_factor": 0.5, "lr": 0.001}
    (record,) = metrics(back, "rollback")
    assert (record["step"], record["diverged_at"], record["lr_factor"]) == (5, 10, 0.5)
    assert record["loss"] is None or ranks == 1
    assert len(metrics(back, "divergence")) == 1


@pytest.mark.slow
def test_going_back_has_an_end(model: str, data: str, tmp_path: Path) -> None:
    """Any learning rate diverges here. Each rollback is kept for the next process."""
    options: dict[str, Any] = {"DIVERGE_AT": 6, "save_every_n_steps": 2, "max_bad_steps": 2}
    options |= {"on_divergence": "rollback", "rollback_lr_factor": 0.1, "max_rollbacks": 2}
    path = tmp_path / "logs" / "run"
    job = diverging(model, data, tmp_path, "run", DIVERGED, **options)
    assert "It has gone back 2 times, as often as --max-rollbacks allows." in job.text
    assert [record["lr_factor"] for record in metrics(path, "rollback")] == pytest.approx([0.1, 0.01])
    newest = json.loads((commits(path)[0].path / "training.json").read_text())
    assert (newest["step"], newest["rollbacks"]["count"]) == (4, 2)
    copied = tmp_path / "logs" / "copied"
    shutil.copytree(path, copied)
    job = diverging(model, data, tmp_path, "run", DIVERGED, **options)
    assert "Rolled back 2 times: the learning rate is 0.01 of --lr 0.001" in job.text
    assert metrics(path, "train")[-1]["lr"] == pytest.approx(1e-5)
    job = diverging(model, data, tmp_path, "copied", 0, **{**options, "DIVERGE_ABOVE": 0.01, "lr": 0.005})
    assert "--lr is 0.005, not 0.001 as before: it is taken whole" in job.text
    assert metrics(copied, "train")[-1]["lr"] == pytest.approx(0.005)
    assert "rollbacks" not in last_commit(copied).training


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "words"),
    [
        # Asked to stop meanwhile: what it has is not published, and the same command would come to the same.
        ({"DIVERGE_AT": 5, "STOP_AT": 8}, "The last finite step was 5; the last sound commit is of step 4"),
        # Too late for --max-bad-steps: a run that ends with such weights has not finished.
        ({"DIVERGE_AT": 22}, "2 steps in a row, 23 to 24"),
        # Every loss is finite, and still nothing can be committed any more.
        ({"DIVERGE_AT": 9, "max_bad_steps": 5}, "at step 17: 1 tensors are not finite (optimizer/state/"),
    ],
    ids=["stop", "end", "finite-loss"],
)
def test_nothing_is_published(sabotage: dict[str, Any], words: str, model: str, data: str, tmp_path: Path) -> None:
    kind = "moment" if "max_bad_steps" in sabotage else "gradient"
    options = {"save_every_n_steps": 4, "DIVERGE_KIND": kind, **sabotage}
    job = diverging(model, data, tmp_path, "run", DIVERGED, **options)
    assert words in said(job)
    assert job.text.count("is not committed") == 1
    path = tmp_path / "logs" / "run"
    assert commits(path)[0].step == {5: 4, 22: 20, 9: 8}[sabotage["DIVERGE_AT"]]
    assert not list((path / "checkpoints").glob("*.pt"))


@pytest.mark.slow
def test_all_ranks_know_what_one_has_found(model: str, data: str, tmp_path: Path) -> None:
    """The verdict of the second rank alone. Weights are finite and committed: that must not cost the sound one."""
    options = {"DIVERGE_AT": 6, "DIVERGE_KIND": "verdict", "DIVERGE_RANK": 1, "save_every_n_steps": 1}
    job = diverging(model, data, tmp_path, "run", DIVERGED, ranks=2, batch_size=2, max_bad_steps=4, **options)
    assert "5 steps in a row, 7 to 11 (loss" in said(job)
    assert [one.step for one in commits(tmp_path / "logs" / "run")] == [5]
    aside = (tmp_path / "logs" / "run" / "checkpoints" / "generations").glob("diverged-*")
    assert sorted(json.loads((one / "training.json").read_text())["step"] for one in aside) == [6, 7, 8, 9, 10]


@pytest.mark.slow
def test_asked_to_stop_on_the_way_back(model: str, data: str, tmp_path: Path) -> None:
    """It goes back first, so that whoever starts it again does not diverge again."""
    options = {"DIVERGE_AT": 5, "DIVERGE_ABOVE": 0.0007, "STOP_AT": 8, "save_every_n_steps": 4}
    diverging(model, data, tmp_path, "run", STOPPED, on_divergence="rollback", **options)
    training = last_commit(tmp_path / "logs" / "run").training
    assert (training["step"], training["rollbacks"]["count"]) == (4, 1)  # before another step


@pytest.mark.slow
def test_without_a_place_for_commits(model: str, data: str, tmp_path: Path) -> None:
    job = run(
        arguments(model, data, Path("none"), None, batch_size=4),
        tmp_path,
        expected=DIVERGED,
        module="saboteurs.diverging",
        environment={"DIVERGE_AT": "22"},
    )
    assert "The last finite step was 22, and nothing was committed, because of --logs none." in said(job)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "pure_fp16"])
def test_half_precision_without_a_scaler(precision: str, model: str, data: str, tmp_path: Path) -> None:
    """On a CPU it is not finite from the first steps on. Towers of transformers can not mix fp16 and fp32."""
    model, data = ("isogclr-tiny", demo_data.TRAIN_DATA) if precision == "fp16" else (model, data)
    flags = {"precision": precision, "max_bad_steps": 4, "train_num_samples": 96}
    job = diverging(model, data, tmp_path, "run", DIVERGED, **flags, DIVERGE_AT=1e9)
    message = said(job)
    assert "nothing was ever committed. What to do: start again under a new --name" in message
    assert "fp16 and pure_fp16 do not scale gradients" in message
    assert commits(tmp_path / "logs" / "run") == []


def test_a_commit_that_is_not_finite_is_not_resumed(model: str, data: str, tmp_path: Path) -> None:
    """Of an earlier release, say: its weights are here made so by hand, as bare weights."""
    options = {"batch_size": 4, "epochs": 1, "train_num_samples": 8}
    run(arguments(model, data, tmp_path / "logs", "sound", **options), tmp_path)
    weights = torch.load(tmp_path / "logs" / "sound" / "checkpoints" / "epoch_1.pt", weights_only=True)[
        "state_dict"
    ]
    weights["visual.conv1.weight"].fill_(float("nan"))
    torch.save(weights, tmp_path / "broken.pt")
    line = arguments(model, data, tmp_path / "logs", "broken", **options, resume=tmp_path / "broken.pt")
    job = run(line, tmp_path, expected=1)
    assert "found 1 tensors that are not finite, visual.conv1.weight among them" in job.text
