"""The launcher and the sbatch files around a program that takes no time: what is refused, started, requeued."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from slurm.cluster import NODES, Job, Slurm, cluster
from slurm.training_job import SCRIPTS, Place

STUB = {"ISOGCLR_MODULE": "support.slurm_stub"}


@pytest.fixture
def place(slurm: Slurm, tmp_path: Path) -> Place:
    return Place(slurm, tmp_path, "model", "/data/{00..03}.tar")


def ended(job: Job, state: str, code: int) -> str:
    assert job.wait(60) == (state, f"{code}:0"), job.text
    assert job.show("Restarts") == "0"
    return job.text


def test_starts_all_tasks_with_the_recipe(place: Place) -> None:
    text = ended(place.submit("run", tasks=2, global_batch=512, environment=STUB), "COMPLETED", 0)
    calls = re.findall(r"^(\d): stub at (\S+):(\d+) called with (.*)$", text, re.MULTILINE)
    assert sorted(rank for rank, *_ in calls) == ["0", "1", "2", "3"]
    assert len({tuple(rest) for _, *rest in calls}) == 1
    _, address, port, line = calls[0]
    assert address == (NODES[0] if place.slurm.has_namespaces else "127.0.0.1")
    assert 20000 <= int(port) < 40000
    assert "<--train-data> </data/{00..03}.tar> <--batch-size> <128> <--epochs> <30> <--lr> <2e-4>" in line
    assert "<--resume> <latest>" in line


@pytest.mark.parametrize(
    ("codes", "code", "words"),
    [
        ("2", 2, "the command line was refused; not requeued"),
        ("76", 76, "it has diverged; not requeued: its message says what to change"),
        ("0 1", 1, "it failed with exit code 1 and has committed nothing since its start; not requeued"),
        # As when one rank is killed and the others wait in NCCL for ever.
        ("sleep 3", 137, "not requeued"),
    ],
)
def test_how_a_failure_ends(place: Place, codes: str, code: int, words: str) -> None:
    start = time.monotonic()
    job = place.submit("run", environment={**STUB, "STUB_CODES": codes, "ISOGCLR_WAIT": "3"})
    assert words in ended(job, "FAILED", code)
    assert time.monotonic() - start < 45


def test_the_signal_before_the_end_of_the_time(place: Place) -> None:
    """--signal of the header, with other numbers: to all tasks, 50 s before a minute is over, or earlier."""
    options = ("--time=1", "--signal=USR1@50")
    job = place.submit("run", options=options, environment={**STUB, "STUB_CODES": "signal"})
    assert job.wait(90) == ("COMPLETED", "0:0"), job.text
    assert job.show("Restarts") == "1"
    assert "requeue: it was stopped on request, after a commit" in job.text
    assert "start 2" in job.text  # in the same file: --open-mode=append


def test_names_that_do_not_resolve_are_replaced_by_addresses(slurm: Slurm, tmp_path: Path) -> None:
    """A cluster whose node names only slurm.conf knows, beside the other one."""
    folder = Path(tempfile.mkdtemp(prefix="isog", dir="/tmp"))
    try:
        with cluster(folder, has_namespaces=False) as nameless:
            job = Place(nameless, tmp_path, "model", "x.tar").submit("run", environment=STUB)
            text = ended(job, "COMPLETED", 0)
    finally:
        shutil.rmtree(folder)
    assert f"the name {NODES[0]} does not resolve; taking its address in slurm.conf, 127.0.0.1" in text
    assert text.count("stub at 127.0.0.1:") == 2


@pytest.mark.parametrize(
    ("script", "environment", "words"),
    [
        ("train_isogclr.sbatch", {"TRAIN_DATA": ""}, "TRAIN_DATA is not set, expected the shards to train on"),
        ("train_fastclip_recipe.sbatch", {"TRAIN_DATA": ""}, "TRAIN_DATA is not set"),
        ("train_isogclr.sbatch", {"GLOBAL_BATCH": "9"}, "GLOBAL_BATCH is 9 but there are 2 tasks"),
        ("train_isogclr.sbatch", {"ISOGCLR_HOME": "/nowhere"}, "found no isogclr checkout there"),
        ("train_isogclr.sbatch", {"ISOGCLR_SETUP": "/nowhere"}, "ISOGCLR_SETUP=/nowhere: found nothing there"),
        ("train_isogclr.sbatch", {"ISOGCLR_PYTHON": "/usr/bin/python3"}, "missing: torch"),
        (
            "train_isogclr.sbatch",
            {"MASTER_ADDR": "no.such.node", "ISOGCLR_NAME_WAIT": "2"},
            "the name of the first node, no.such.node, did not resolve within 2 s",
        ),
        ("train_isogclr.sbatch", {"ISOGCLR_PORTS": "many"}, "expected a port or FIRST-LAST"),
        ("sweep.sbatch", {"SEEDS": "0 1"}, "LOSSES × SEEDS are 8 runs but the array has 1 tasks"),
        ("eval.sbatch", {"DATA_ROOT": "/nowhere"}, "DATA_ROOT=/nowhere: found nothing there"),
        ("eval.sbatch", {"DATA_ROOT": "/tmp", "CHECKPOINTS": "/nowhere/*.pt"}, "found no such file"),
    ],
)
def test_refused_before_anything_runs(
    place: Place, script: str, environment: Mapping[str, str], words: str
) -> None:
    options = ("--array=0",) if script == "sweep.sbatch" else ()
    job = place.submit("run", script=script, options=options, environment={**STUB, **environment})
    text = ended(job, "FAILED", 2)
    assert words in text
    assert "stub at" not in text


def test_no_free_port(place: Place) -> None:
    """Something listens on the only port that the site allows."""
    listen = (
        "import socket, time; s = socket.create_server(('', 23456)); print('ready', flush=True); time.sleep(60)"
    )
    entered = place.slurm._enter(NODES[0]) if place.slurm.has_namespaces else []
    with subprocess.Popen([*entered, "python3", "-c", listen], stdout=subprocess.PIPE) as listener:
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"ready\n"
        try:
            job = place.submit("run", environment={**STUB, "ISOGCLR_PORTS": "23456-23456"})
            assert "found no free port among 23456-23456" in ended(job, "FAILED", 2)
        finally:
            listener.kill()


def test_a_sweep_is_an_array_of_runs(place: Place) -> None:
    """Two losses, two seeds; --signal and --requeue hold for each run on its own."""
    environment = place.environment("", 8, **STUB, LOSSES="clip isogclr", SEEDS="0 7", SWEEP="s")
    output = place.folder / "sweep-%a.out"
    options = ["--array=0-3", "--nodes=1", "--ntasks-per-node=1", "--gpus-per-node=0", "--cpus-per-task=1"]
    job = place.slurm.submit(
        SCRIPTS / "sweep.sbatch", options=[*options, "--time=5", f"--output={output}"], environment=environment
    )
    deadline = time.monotonic() + 90
    while (states := _states(job)) != {"COMPLETED"}:
        assert time.monotonic() < deadline, states
        assert "FAILED" not in states, [path.read_text() for path in place.folder.glob("sweep-*.out")]
        time.sleep(0.3)
    found = set()
    for number in range(4):
        text = (place.folder / f"sweep-{number}.out").read_text()
        found.add(tuple(re.search(rf"<{flag}> <([^>]*)>", text)[1] for flag in ("--name", "--loss", "--seed")))  # type: ignore[index]
    assert found == {(f"s-{loss}-{seed}", loss, seed) for loss in ("clip", "isogclr") for seed in ("0", "7")}


def _states(job: Job) -> set[str]:
    return set(re.findall(r"JobState=(\S+)", job.slurm.call("scontrol", "show", "job", job.number)))


def test_the_flags_of_both_recipes_exist() -> None:
    """What the sbatch files pass is understood by the trainer: no cluster needed."""
    from training import params  # noqa: PLC0415

    for name in ("train_isogclr.sbatch", "train_fastclip_recipe.sbatch"):
        text = (SCRIPTS / name).read_text()
        call = text[text.index('train "$LOGS"') :].replace("\\\n", " ")
        values = {"LOSS": "isogclr", "TRAIN_DATA": "x.tar", "batch": "8", "SEED": "0", "NAME": "n", "LOGS": "l"}
        values["recipe"] = "".join(re.findall(r'then recipe="([^"]*)"', text))
        values["MODEL_FLAGS"] = re.search(r"MODEL_FLAGS:=([^}]*)}", text)[1]  # type: ignore[index]
        call = re.sub(r'"?\$\{SLURM_CPUS_PER_TASK:-4\}"?', "4", call).replace('"$@"', "")
        words = re.sub(r'"?\$(\w+)"?', lambda found, values=values: values[found[1]], call).split()
        settings, _ = params.parse(words[3:])
        assert (settings.loss.name, settings.loss.preset) == ("isogclr", "paper")
        assert settings.run.epochs == (30 if "fastclip" not in name else 37)


def test_the_scripts_are_sound_bash() -> None:
    for path in sorted(SCRIPTS.iterdir()):
        subprocess.run(["bash", "-n", str(path)], check=True)
