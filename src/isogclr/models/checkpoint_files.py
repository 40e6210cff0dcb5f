"""Content of a checkpoint file: tensors and plain values only. A checkpoint is never run as a program."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from isogclr.errors import ModelError

_PREFIXES = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile; may be nested
_OBJECT = re.compile(r"GLOBAL ([\w.]+)")  # as torch names what it refuses to make
_ADVICE = re.compile(r"weights[ _]only|safe_globals", re.IGNORECASE)


class UnreadableCheckpointError(ModelError):
    """A file that is there and holds no checkpoint; `reason` says why, for callers that know what to do instead."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a `.pt` file."""
    return _read(path, lambda: torch.load(path, map_location="cpu", weights_only=True))


def read_safetensors(path: Path) -> dict[str, Any]:
    """Tensors by name."""

    def load() -> Any:
        from safetensors.torch import load_file  # noqa: PLC0415 (comes with the extra `eval`)

        return load_file(path)

    return _read(path, load)


def bare_name(name: str) -> str:
    """The name of a weight in the model itself, without what wrappers put in front."""
    while name.startswith(_PREFIXES):
        name = name.split(".", 1)[1]
    return name


def no_file(path: Path) -> ModelError:
    return ModelError(f"{path} is no file; a checkpoint such as RUN/checkpoints/epoch_30.pt was expected")


def _read(path: Path, load: Callable[[], Any]) -> dict[str, Any]:
    if not path.is_file():
        raise no_file(path)
    try:
        content = load()
    except Exception as error:  # unpickling, zip, safetensors and end-of-file errors have no common base
        reason = reason_of(error)
        raise UnreadableCheckpointError(
            f"{path} can not be read as a checkpoint of tensors and plain values: {reason}", reason
        ) from None  # a traceback would show torch's advice
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise UnreadableCheckpointError(f"{path} holds a {kind}, no checkpoint", f"it holds a {kind}")
    return content


def reason_of(error: Exception) -> str:
    """What is wrong with the file, in one line.

    torch advises to load what it refuses without `weights_only`, which would run whatever the file asks for. That
    advice is never passed on.
    """
    text, kind = str(error).strip(), type(error).__name__
    if isinstance(error, KeyError | IndexError):  # of an unpickler that has met other bytes than its own
        return "it is no file that torch.save has written, or is cut short"
    if not _ADVICE.search(text):
        return f"{kind}: {text.splitlines()[0] if text else 'no reason given'}"
    named = _OBJECT.search(text)
    if named is not None:
        return (
            f"{kind}: it asks for {named[1]}, which is neither a tensor nor a plain value; making it could run a "
            "program, so it is refused"
        )
    return f"{kind}: it is in no format that can be read without running what is in it, or is damaged"
