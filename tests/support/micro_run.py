"""Whole runs of the trainer, small enough for a test: data, a model, and processes forked with torch loaded."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from support.shard_writing import WORDS

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["torch", "open_clip", "open_clip_train.main", "transformers", "training.run", "training.open_clip_program"]
)
WAIT_SECONDS = 120


def write_csv(folder: Path, samples: int, seed: int = 0) -> str:
    """A table of noise images, as open_clip reads it; returns its path."""
    from PIL import Image  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    lines = ["filepath\ttitle"]
    for number in range(samples):
        image = folder / f"{number:06d}.png"
        Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(image)
        lines.append(f"{image}\t{' '.join(generator.choice(WORDS, 3))}")
    table = folder / "table.csv"
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(table)


def write_model(folder: Path, dropout: float = 0.0, layers: int = 1) -> str:
    """A CLIP of about 30,000 parameters, as a folder; returns its name for `--model`. Weights of the text tower are
    in it, the rest starts at random."""
    from transformers import BertConfig, BertModel  # noqa: PLC0415

    tower = folder / "text"  # apart: open_clip would take its weights for those of the whole model
    tower.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    for place in (folder, tower):
        (place / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
        kind = json.dumps({"tokenizer_class": "BertTokenizer"})
        (place / "tokenizer_config.json").write_text(kind, encoding="utf-8")
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(tower)
    text = {
        "hf_model_name": str(tower),
        "hf_tokenizer_name": str(folder),
        "hf_proj_type": "linear",
        "hf_pooler_type": "cls_last_hidden_state_pooler",
        "context_length": 8,
    }
    vision = {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}
    model = {"model_cfg": {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}}
    (folder / "open_clip_config.json").write_text(json.dumps(model), encoding="utf-8")
    return f"local-dir:{folder}"


def arguments(model: str, train_data: str | None, logs: Path, name: str | None, **flags: Any) -> list[str]:
    """A command line for `training.main`; a flag of None is left out, of True has no value.

    iSogCLR has the paper's preset: with its γ and its momentum all of a sample's row matters for the next step.
    """
    values = {
        "model": model,
        "train_data": train_data,
        "logs": logs,
        "name": name,
        "batch_size": 8,
        "workers": 0,
        "warmup": 0,
        "epochs": 1,
        "lr": 0.001,
        "precision": "fp32",
        "log_every_n_steps": 1,
        "device": "cpu",
        "isogclr_preset": "paper" if flags.get("loss") == "isogclr" else None,
        **flags,
    }
    return command_line(values)


def command_line(values: Mapping[str, Any]) -> list[str]:
    """Flags by name; one of None is left out, one of True has no value."""
    line = []
    for flag, value in values.items():
        if value is None or value is False:
            continue
        line.append("--" + flag.replace("_", "-"))
        if value is not True:
            line += [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
    return line


@dataclass
class Job:
    """Processes of one run."""

    processes: list[Any]
    outputs: list[Path]
    started: float = field(default_factory=time.monotonic)

    def wait(self, seconds: float = WAIT_SECONDS) -> list[int]:
        """Exit codes by rank; a process that does not end in time is killed, and fails the test."""
        deadline = time.monotonic() + seconds
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
        late = [rank for rank, process in enumerate(self.processes) if process.is_alive()]
        self.kill()
        assert not late, f"ranks {late} did not end within {seconds} s:\n{self.text}"
        return [process.exitcode for process in self.processes]

    def kill(self, number: int = signal.SIGKILL) -> None:
        for process in self.processes:
            if process.is_alive():
                os.kill(process.pid, number)
        if number == signal.SIGKILL:
            for process in self.processes:
                process.join()

    @property
    def text(self) -> str:
        """Everything that all ranks have said."""
        return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in self.outputs)

    def wait_for(self, words: str, seconds: float = WAIT_SECONDS) -> None:
        """Return when some rank has said this."""
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, f"nobody said {words!r}:\n{self.text}"
            assert any(process.is_alive() for process in self.processes), f"all ended:\n{self.text}"
            time.sleep(0.02)


def start(
    argv: Sequence[str],
    folder: Path,
    *,
    ranks: int = 1,
    module: str = "training.main",
    environment: Mapping[str, str] | None = None,
) -> Job:
    """`python -m MODULE ARGV` on this many ranks, each in a process that is forked with torch loaded."""
    folder.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    processes, outputs = [], []
    for rank in range(ranks):
        output = folder / f"output-{time.monotonic_ns()}-{rank}.txt"
        output.touch()
        variables = dict(environment or {})
        if ranks > 1:
            variables |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
        process = CONTEXT.Process(target=_rank, args=(list(argv), module, variables, str(output), str(folder)))
        process.start()
        processes.append(process)
        outputs.append(output)
    return Job(processes, outputs)


def run(argv: Sequence[str], folder: Path, *, ranks: int = 1, expected: int = 0, **options: Any) -> Job:
    """`start`, and wait for the expected exit code of all ranks."""
    job = start(argv, folder, ranks=ranks, **options)
    codes = job.wait()
    assert codes == [expected] * ranks, f"exit codes {codes}:\n{job.text}"
    return job


def metrics(run_folder: Path, kind: str) -> list[dict[str, Any]]:
    """Lines of metrics.jsonl of one kind."""
    lines = (run_folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def weights(run_folder: Path, epoch: int = 1) -> dict[str, Any]:
    """Parameters by name, as a single process names them."""
    import torch  # noqa: PLC0415

    content = torch.load(run_folder / "checkpoints" / f"epoch_{epoch}.pt", weights_only=True)
    return {name.removeprefix("module."): value for name, value in content["state_dict"].items()}


def stored(run_folder: Path) -> Any:
    """All rows of the store, as the latest commit has them."""
    from isogclr.state import STORE_SNAPSHOT, MemoryStore, latest  # noqa: PLC0415
    from isogclr.state.snapshot import Snapshot  # noqa: PLC0415

    generation = latest(run_folder / "checkpoints" / "generations")
    assert generation is not None
    path = generation.path / STORE_SNAPSHOT
    with Snapshot(path) as snapshot:
        header = snapshot.header
    store = MemoryStore.restore(path, header.schema, header.rows, header.index_fingerprint)
    return store.read(np.arange(store.rows))


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _rank(argv: list[str], module: str, variables: dict[str, str], output: str, folder: str) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.environ.update(variables)
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.chdir(folder)
    multiprocessing.set_start_method("fork", force=True)  # for data workers, as in a process of its own
    import importlib  # noqa: PLC0415

    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    main = importlib.import_module(module).main
    code = main(argv)
    sys.stdout.flush()
    sys.exit(code or 0)


@contextlib.contextmanager
def ended(job: Job) -> Iterator[Job]:
    """Kill what is left when the test is over."""
    try:
        yield job
    finally:
        job.kill()
