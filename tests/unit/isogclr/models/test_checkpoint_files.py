"""Files that hold more than tensors and plain values: refused in our own words, and never run."""

from __future__ import annotations

import argparse
import io
import os
import tarfile
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from isogclr.errors import ModelError
from isogclr.models.checkpoint_files import UnreadableCheckpointError, bare_name, read_checkpoint, read_safetensors

ADVICE = ("Weights only", "`weights_only`", "set to `False`", "safe_globals", "trust", "Re-running")


class Program:
    """Leaves a file behind when it is loaded as an ordinary pickle."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def program(path: Path) -> None:
    torch.save({"state_dict": Program(path.with_name("mark"))}, path)


def foreign_class(path: Path) -> None:
    torch.save({"args": argparse.Namespace(lr=1)}, path)


def foreign_bytes(path: Path) -> None:
    path.write_bytes(b"not a checkpoint")


def torch_script(path: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(path))  # type: ignore[no-untyped-call]


def old_tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            archive.addfile(tarfile.TarInfo(name), io.BytesIO())


@pytest.mark.filterwarnings("ignore:.*torch:UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (program, "it asks for posix.system, which is neither a tensor nor a plain value"),
        (foreign_class, "it asks for argparse.Namespace, which is neither a tensor nor a plain value"),
        (foreign_bytes, "it is in no format that can be read without running what is in it, or is damaged"),
        (torch_script, "it is in no format that can be read without running what is in it, or is damaged"),
        (old_tar, "it is in no format that can be read without running what is in it, or is damaged"),
    ],
)
def test_torchs_advice_is_not_passed_on(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    path = tmp_path / "it.pt"
    make(path)
    with pytest.raises(UnreadableCheckpointError) as caught:
        read_checkpoint(path)
    assert words in str(caught.value)
    assert words in caught.value.reason
    shown = "".join(traceback.format_exception(caught.value))
    assert not [advice for advice in ADVICE if advice in shown]
    assert not (tmp_path / "mark").exists()


def test_damage_keeps_torchs_first_line(tmp_path: Path) -> None:
    path = tmp_path / "it.pt"
    torch.save({"a": torch.zeros(1000)}, path)
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(UnreadableCheckpointError, match="RuntimeError: PytorchStreamReader failed") as caught:
        read_checkpoint(path)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"")
    with pytest.raises(UnreadableCheckpointError, match="EOFError: no reason given"):
        read_checkpoint(path)


@pytest.mark.parametrize("read", [read_checkpoint, read_safetensors])
def test_what_is_no_file(tmp_path: Path, read: Callable[[Path], object]) -> None:
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(ModelError, match="is no file; a checkpoint"):
            read(path)


def test_bare_names() -> None:
    names = ("a.b", "module.a.b", "_orig_mod.a.b", "module._orig_mod.module.a.b")
    assert {bare_name(name) for name in names} == {"a.b"}
    assert bare_name("a.module.b") == "a.module.b"
