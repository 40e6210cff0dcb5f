"""From a checkpoint file to a model that can be measured or exported.

Three kinds load: those of `training.main` (they know their model), those of `open_clip_train.main`, and plain
state_dicts, as .pt or .safetensors (these two need the name of their model).
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isogclr.errors import ModelError
from isogclr.models import model_configs
from isogclr.models.checkpoint_files import bare_name, no_file, read_checkpoint, read_safetensors
from isogclr.models.encoder import Preprocess, Tokenizer

_SHOWN = 4
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Weights:
    """The content of a checkpoint file, without knowing its model yet. `details` is the part that is ours."""

    path: Path
    state: dict[str, Tensor]
    details: dict[str, Any] = field(default_factory=dict)
    epoch: int | None = None


@dataclass(frozen=True)
class LoadedModel:
    """A model with its weights, and what feeds it."""

    model: nn.Module
    preprocess: Preprocess
    tokenizer: Tokenizer
    name: str
    config: dict[str, Any]
    weights: Weights


def content_hash(path: Path) -> str:
    """SHA-256 of the file: results are cached by it, so a checkpoint may move and be renamed."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while part := stream.read(_CHUNK_BYTES):
                digest.update(part)
        return digest.hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        raise no_file(path) from None


def read_weights(path: Path) -> Weights:
    """Read tensors and plain values only: a checkpoint is never run as a program."""
    content = read_safetensors(path) if path.suffix == ".safetensors" else read_checkpoint(path)
    details = content.get("isogclr")
    state = content.get("state_dict", content)
    if (
        not isinstance(state, Mapping)
        or not state
        or not all(isinstance(value, Tensor) for value in state.values())
    ):
        raise ModelError(
            f"{path} is no checkpoint of a model: neither a state_dict (names and tensors) nor a file with one "
            f"under `state_dict`; found {_keys(content)}"
        )
    epoch = content.get("epoch")
    return Weights(
        path=path,
        state={bare_name(name): tensor for name, tensor in state.items()},
        details=dict(details) if isinstance(details, Mapping) else {},
        epoch=epoch if isinstance(epoch, int) else None,
    )


def is_unimodal(weights: Weights) -> bool:
    """Whether it is of training.unimodal, by what it says itself."""
    return weights.details.get("kind") == "unimodal"


def load_model(
    path: Path,
    model_name: str | None = None,
    device: str | torch.device = "cpu",
    weights: Weights | None = None,
) -> LoadedModel:
    """The model of a checkpoint. `model_name` (of open_clip, or ours) wins over what the checkpoint says.

    Args:
        weights: the content of the file, if somebody has read it already.
    """
    weights = weights or read_weights(path)
    if is_unimodal(weights):
        raise ModelError(
            f"{path} is a checkpoint of training.unimodal (backbone {weights.details.get('backbone')}), which "
            "`isogclr linear` measures and `isogclr export` exports; it never saw a caption: no model of open_clip"
        )
    name = model_name or weights.details.get("model")
    if not name:
        raise ModelError(
            f"{path} does not say which model it is of, as those of training.main do: name it with --model NAME"
        )
    config = _config(str(name), None if model_name else weights.details.get("model_config"))
    if "logit_bias" in weights.state:  # SigLIP's loss adds it to any model, and no configuration says so
        config.setdefault("init_logit_bias", 0.0)
    try:
        model, preprocess = _create(config, weights.details.get("preprocess_cfg") or {})
        tokenizer = _tokenizer(str(name), config)
    except Exception as error:  # of open_clip, timm, transformers, the hub: whatever a configuration can ask for
        raise ModelError(
            f"{path}: the model {name} can not be built from its configuration: {type(error).__name__}: {error}"
        ) from error
    load_state(model, weights.state, path, str(name), "name its model with --model")
    return LoadedModel(
        model=model.to(device).eval(),
        preprocess=preprocess,
        tokenizer=tokenizer,
        name=str(name),
        config=config,
        weights=weights,
    )


def _keys(content: Mapping[str, Any]) -> str:
    names = [str(name) for name in content]
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "") if names else "nothing"


def _config(name: str, saved: Any) -> dict[str, Any]:
    import open_clip  # noqa: PLC0415

    if isinstance(saved, Mapping):
        return dict(saved)
    model_configs.register()
    config = open_clip.get_model_config(name)
    if config is None:
        raise ModelError(
            f"open_clip knows no model {name!r}; `python -c 'import open_clip; print(open_clip.list_models())'` "
            f"lists them, and isogclr adds {', '.join(sorted(p.stem for p in model_configs.FOLDER.glob('*.json')))}"
        )
    return dict(config)


def _create(config: Mapping[str, Any], preprocess: Mapping[str, Any]) -> tuple[nn.Module, Preprocess]:
    """Through a folder as `isogclr export` writes it: open_clip's registry of names stays as it is."""
    import open_clip  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="isogclr-model-") as folder, _without_alarm():
        content = {"model_cfg": config, "preprocess_cfg": dict(preprocess)}
        (Path(folder) / "open_clip_config.json").write_text(json.dumps(content), encoding="utf-8")
        model, _, transform = open_clip.create_model_and_transforms(
            f"local-dir:{folder}", load_weights=False, pretrained_image=False, pretrained_text=False
        )
    return model, transform


@contextmanager
def _without_alarm() -> Iterator[None]:
    """open_clip warns of random weights, and these are about to be replaced."""
    alarms = ("no CLIP weights found", "No pretrained weights loaded")
    root = logging.getLogger()  # where open_clip logs

    def keep(record: logging.LogRecord) -> bool:
        return not any(alarm in record.getMessage() for alarm in alarms)

    root.addFilter(keep)
    try:
        yield
    finally:
        root.removeFilter(keep)


def _tokenizer(name: str, config: Mapping[str, Any]) -> Tokenizer:
    """By open_clip's rules; length and options are the saved ones, since the name may mean another model by now."""
    import open_clip  # noqa: PLC0415

    from isogclr.models.captions import for_any_caption  # noqa: PLC0415

    model_configs.register()
    text = config["text_cfg"]
    options = dict(text.get("tokenizer_kwargs", {}))
    options["context_length"] = text.get("context_length", open_clip.tokenizer.DEFAULT_CONTEXT_LENGTH)
    tokenizer: Tokenizer
    if text.get("hf_tokenizer_name"):
        mode = text.get("tokenizer_mode")
        tokenizer = open_clip.tokenizer.HFTokenizer(text["hf_tokenizer_name"], tokenizer_mode=mode, **options)
    else:
        tokenizer = open_clip.get_tokenizer(name, **options)
    bounded: Tokenizer = for_any_caption(tokenizer)
    return bounded


def load_state(model: nn.Module, state: Mapping[str, Tensor], path: Path, name: str, advice: str) -> None:
    """Give a model its weights; if they are not the ones it has, an error names the difference, and the advice."""
    expected, found = model.state_dict(), dict(state)
    for scalar in ("logit_scale", "logit_bias"):  # without dimensions in some releases, with one in others
        if scalar in found and scalar in expected and found[scalar].numel() == 1:
            found[scalar] = found[scalar].reshape(expected[scalar].shape)
    missing = [key for key in expected if key not in found]
    unexpected = [key for key in found if key not in expected]
    reshaped = [
        f"{key} {tuple(found[key].shape)} instead of {tuple(expected[key].shape)}"
        for key in expected
        if key in found and found[key].shape != expected[key].shape
    ]
    parts = (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
    problems = [f"{len(keys):,} {what} ({_some(keys)})" for what, keys in parts if keys]
    if problems:
        raise ModelError(
            f"{path} does not match the model {name}, which has {len(expected):,} weights: "
            f"{'; '.join(problems)}; {advice}"
        )
    model.load_state_dict(found)


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:_SHOWN]) + (", …" if len(keys) > _SHOWN else "")
