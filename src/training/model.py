"""The model of pictures and captions: open_clip's factory, locks, DDP, compilation."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import open_clip
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from isogclr.errors import ConfigError, ModelError, TrainingError
from isogclr.models import model_configs, text_tower
from isogclr.models.captions import for_any_caption
from isogclr.models.checkpoint_files import UnreadableCheckpointError, read_checkpoint, read_safetensors, reason_of
from training.features import Features
from training.open_clip_bridge import MAX_LOG_LOGIT_SCALE, SIGLIP_MODEL_OPTIONS, Place
from training.randomness import seed_everything
from training.settings import ModelSettings


@dataclass
class Model:
    """A model in the forms that a run needs.

    Args:
        bare: without DDP and compilation; evaluation and `logit_scale` use it.
        wrapped: with DDP if there are several ranks; checkpoints hold its state, as open_clip's do.
        called: what a training step calls: `wrapped`, compiled if asked for.
        transforms: of the images, for training and for evaluation.
        config: open_clip's configuration of the model, with what was overridden.
        input_dtype: of images.
    """

    bare: nn.Module
    wrapped: nn.Module
    called: nn.Module
    transforms: tuple[Callable[..., Tensor], Callable[..., Tensor]]
    tokenizer: Callable[..., Tensor]
    config: Mapping[str, Any]
    input_dtype: torch.dtype | None

    @property
    def stored(self) -> nn.Module:
        """As open_clip's checkpoints: with the prefix of DDP, if there are several ranks."""
        return self.wrapped

    def features(self, inputs: Sequence[Tensor]) -> Features:
        """Of images and texts, in this order."""
        found = self.called(*inputs)
        scalars = {name: found[name] for name in ("logit_scale", "logit_bias") if name in found}
        return Features(found["image_features"], found["text_features"], scalars)

    def train(self) -> None:
        """Training mode, before an epoch."""
        self.called.train()

    def without_sync(self) -> AbstractContextManager[None]:
        """A backward pass in here does not reduce gradients: all but the last micro-batch of a step."""
        if isinstance(self.wrapped, DistributedDataParallel):
            return cast(AbstractContextManager[None], self.wrapped.no_sync())
        return nullcontext()

    @property
    def preprocess_config(self) -> dict[str, Any]:
        """How images are prepared for evaluation, as open_clip's configurations say it."""
        return dict(open_clip.get_model_preprocess_cfg(self.bare))

    @torch.no_grad()
    def after_step(self) -> None:
        """The logit scale to [1, 100], as CLIP's authors and open_clip do after every step."""
        cast(Tensor, self.bare.logit_scale).clamp_(0, MAX_LOG_LOGIT_SCALE)


def create_model(settings: ModelSettings, place: Place, seed: int, tower: Path | None = None) -> Model:
    """The model on its device, the same on all ranks; its text tower from a folder, if one is given."""
    model_configs.register()
    name = _local_text_tower(settings.name, tower)
    seed_everything(seed)
    bare, train_transform, val_transform = _from_factory(name, settings, place)
    if settings.use_bnb_linear is not None:
        bare = _with_bnb_linear(bare, settings.use_bnb_linear, place.device)
    seed_everything(seed, place.rank)
    _adjust(bare, settings, place)
    options = settings.factory_options
    tokenizer = for_any_caption(
        open_clip.get_tokenizer(
            name, cache_dir=options.get("cache_dir"), context_length=options.get("force_context_length")
        )
    )
    wrapped = _distributed(bare, settings, place)
    called = _compiled(wrapped, settings, place) if settings.torchcompile else wrapped
    return Model(
        bare=bare,
        wrapped=wrapped,
        called=called,
        transforms=(train_transform, val_transform),
        tokenizer=tokenizer,
        config=_model_config(name, options),
        input_dtype=open_clip.get_input_dtype(settings.precision),
    )


def _from_factory(name: str, settings: ModelSettings, place: Place) -> tuple[Any, Any, Any]:
    try:
        return cast(
            tuple[Any, Any, Any],
            open_clip.create_model_and_transforms(
                name,
                settings.pretrained,
                precision=settings.precision,
                device=place.device,
                output_dict=True,
                **deepcopy(dict(settings.factory_options)),
            ),
        )
    except Exception as error:  # unpickling, zip, network and shape errors have no common base
        reason = _fault_of_pretrained(settings.pretrained, error)
        if reason is not None:
            raise TrainingError(f"--pretrained {settings.pretrained}: {reason}") from None  # torch gives advice
        if "weights_only" in str(error):
            raise TrainingError(
                f"--model {settings.name}: its weights can not be used ({reason_of(error)})"
            ) from None
        raise


def _fault_of_pretrained(pretrained: str, error: Exception) -> str | None:
    """What is wrong with the weights, in one line; None if the model could not be made for another reason."""
    text = " ".join(str(error).split())
    if not pretrained:
        return None
    if text.startswith("Failed to download"):
        return f"its weights can not be fetched ({text[:500]}); download them elsewhere, and name the file"
    if "Error(s) in loading state_dict" in text or "size mismatch" in text:
        return f"its weights do not fit the model ({text[:500]}); use the --model that they were trained with"
    path = Path(pretrained)
    if not path.is_file():
        return None
    try:
        read_safetensors(path) if path.suffix == ".safetensors" else read_checkpoint(path)
    except UnreadableCheckpointError as unreadable:
        return (
            f"found a file that torch can not load ({unreadable.reason}), expected a checkpoint: it was cut short, "
            "or is something else; fetch it again"
        )
    return None


def prepare_text_tower(settings: ModelSettings, target: Path) -> Path | None:
    """The folder of the text tower, if it does not come from where open_clip would look. On one rank.

    A DistilBERT becomes a BERT, written to `target`; see `isogclr.models.text_tower`.
    """
    folder = settings.text_model
    if folder is None:
        model_configs.register()
        config = open_clip.get_model_config(settings.name)
        name = (config or {}).get("text_cfg", {}).get("hf_model_name") or ""
        if "distilbert" not in name:
            return None
        folder = _fetched(name)
    if not text_tower.is_distilbert(folder):
        return folder
    if not target.exists():
        logging.info(f"Writing the DistilBERT of {folder} as a BERT to {target}")
        text_tower.convert(folder, target, with_weights=bool(settings.factory_options.get("pretrained_text", True)))
    return target


def _fetched(name: str) -> Path:
    """The files of a model of the Hugging Face hub, from its cache or by a download."""
    from huggingface_hub import snapshot_download  # noqa: PLC0415 (only for one model)

    try:
        return Path(snapshot_download(name, allow_patterns=["*.json", "*.txt", "*.safetensors"]))
    except Exception as error:  # network, cache and permission errors of many kinds
        raise ModelError(
            f"the text tower {name} can not be fetched ({type(error).__name__}); give a folder that has it with "
            "--text-model"
        ) from error


def _local_text_tower(name: str, folder: Path | None) -> str:
    """The name of a configuration whose Hugging Face text tower and tokenizer come from a folder."""
    if folder is None:
        return name
    config = open_clip.get_model_config(name)
    if config is None or "hf_model_name" not in config["text_cfg"]:
        raise ConfigError([f"--text-model: --model {name} has no Hugging Face text tower to replace"])
    return model_configs.register_variant(name, {"hf_model_name": str(folder), "hf_tokenizer_name": str(folder)})


def _model_config(name: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """What creates the model again, without flags."""
    found = open_clip.get_model_config(name) or open_clip.get_model_config(name.replace("/", "-"))
    config = cast(dict[str, Any], deepcopy(found))  # the factory has found it too
    if options.get("force_image_size") is not None:
        config["vision_cfg"]["image_size"] = options["force_image_size"]
    if options.get("force_context_length") is not None:
        config["text_cfg"]["context_length"] = options["force_context_length"]
    if options.get("force_quick_gelu"):
        config["quick_gelu"] = True
    if options.get("force_custom_text"):
        config["custom_text"] = True
    return config | {option: options[option] for option in SIGLIP_MODEL_OPTIONS if option in options}


def _with_bnb_linear(model: nn.Module, kind: str, device: torch.device) -> nn.Module:
    import bitsandbytes  # noqa: PLC0415 (optional)
    from open_clip.utils import replace_linear  # noqa: PLC0415

    replace_linear(model, getattr(bitsandbytes.nn.triton_based_modules, kind))
    return model.to(device)


def _adjust(model: Any, settings: ModelSettings, place: Place) -> None:
    if settings.lock_image:
        model.lock_image_tower(
            unlocked_groups=settings.lock_image_unlocked_groups,
            freeze_bn_stats=settings.lock_image_freeze_bn_stats,
        )
    if settings.lock_text:
        _lock_text(model, settings)
    if settings.grad_checkpointing:
        model.set_grad_checkpointing()


def _lock_text(model: Any, settings: ModelSettings) -> None:
    try:
        model.lock_text_tower(
            unlocked_layers=settings.lock_text_unlocked_layers,
            freeze_layer_norm=settings.lock_text_freeze_layer_norm,
        )
    except KeyError as error:
        raise ConfigError(
            [
                f"--lock-text-unlocked-layers {settings.lock_text_unlocked_layers}: open_clip can not unlock some "
                f"layers of the text tower of --model {settings.name} (it does not know {error}): leave it out to "
                "lock the whole tower"
            ]
        ) from None


def _distributed(model: nn.Module, settings: ModelSettings, place: Place) -> nn.Module:
    if place.world_size == 1:
        return model
    if settings.use_bn_sync:
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
    on_device: dict[str, Any] = {} if place.device.type == "cpu" else {"device_ids": [place.device]}
    return DistributedDataParallel(model, static_graph=settings.ddp_static_graph, **on_device)


def _compiled(model: nn.Module, settings: ModelSettings, place: Place) -> nn.Module:
    logging.info("Compiling model...")
    if settings.grad_checkpointing and place.world_size > 1:
        # DDP's graph splitting and checkpointing do not go together (open_clip does the same).
        torch._dynamo.config.optimize_ddp = False
    return cast(nn.Module, torch.compile(model))
