"""From a checkpoint of training.unimodal to its backbone, which is measured and handed on without the projector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from isogclr.errors import ModelError
from isogclr.models.backbones import create_backbone
from isogclr.models.checkpoints import Weights, is_unimodal, load_state, read_weights

if TYPE_CHECKING:
    from isogclr.pictures.preprocessing import Preprocessing

_PREFIX = "backbone."
_NEEDED = ("backbone", "stem", "image_size", "mean", "std")


@dataclass(frozen=True)
class LoadedBackbone:
    """A backbone with its weights, in evaluation mode, without gradients, and what feeds it."""

    backbone: nn.Module
    weights: Weights

    @property
    def width(self) -> int:
        """Features per picture."""
        return int(self.backbone.width)  # type: ignore[arg-type]

    @property
    def name(self) -> str:
        """Backbone and stem, as in `resnet18 (cifar stem)`."""
        return f"{self.weights.details['backbone']} ({self.weights.details['stem']} stem)"

    def preprocessing(self) -> Preprocessing:
        """As the model saw pictures in training, without augmentation."""
        from isogclr.pictures.preprocessing import Preprocessing  # noqa: PLC0415 (torchvision is slow to import)

        details = self.weights.details
        mean, std = _three(details["mean"]), _three(details["std"])
        return Preprocessing(int(details["image_size"]), mean, std)


def load_backbone(path: Path, device: str | torch.device = "cpu", weights: Weights | None = None) -> LoadedBackbone:
    """The backbone of a checkpoint of training.unimodal.

    Args:
        weights: the content of the file, if somebody has read it already.
    """
    weights = weights or read_weights(path)
    _check(weights)
    details = weights.details
    backbone = create_backbone(str(details["backbone"]), str(details["stem"]))
    state = backbone_state(weights)
    load_state(
        backbone, state, path, f"{details['backbone']} ({details['stem']} stem)", "the file is damaged, or newer"
    )
    return LoadedBackbone(backbone.to(device).eval().requires_grad_(False), weights)


def backbone_state(weights: Weights) -> dict[str, Tensor]:
    """The weights of the backbone alone, by their names in it."""
    return {name[len(_PREFIX) :]: value for name, value in weights.state.items() if name.startswith(_PREFIX)}


def _check(weights: Weights) -> None:
    details = weights.details
    if not is_unimodal(weights):
        if "model" in details:
            found = f"is a checkpoint of training.main (model {details['model']}), which `isogclr eval` measures"
        else:
            found = "does not say which backbone it is of"
        raise ModelError(
            f"{weights.path} {found}; a checkpoint of training.unimodal was expected, such as "
            "RUN/checkpoints/epoch_400.pt"
        )
    missing = [name for name in _NEEDED if details.get(name) is None]
    wrong = [name for name in ("mean", "std") if name not in missing and not _is_three(details[name])]
    if missing or wrong:
        raise ModelError(
            f"{weights.path} is of training.unimodal, but its facts are not complete: missing "
            f"{', '.join(missing) or 'none'}, not three numbers {', '.join(wrong) or 'none'}; it is damaged, or of "
            "another release"
        )


def _is_three(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 3 and all(isinstance(one, int | float) for one in value)


def _three(value: Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = map(float, value)
    return red, green, blue
