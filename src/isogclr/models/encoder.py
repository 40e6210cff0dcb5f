"""A model as clip_benchmark wants it: features in fp32, at a precision of our choice, refused unless finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from isogclr.errors import InputError
from isogclr.evaluation.metrics import require_finite

PRECISIONS = ("fp32", "amp", "amp_bf16")
Preprocess = Callable[[Any], Tensor]
Tokenizer = Callable[[Sequence[str]], Tensor]


def usable_device(name: str) -> torch.device:
    """The device by its name; InputError if it does not exist, before a model is sent there."""
    try:
        return torch.zeros(1, device=name).device
    except Exception as error:  # RuntimeError, AssertionError, NotImplementedError: by kind of device
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"device {name!r} can not be used here: {reason}; --device cpu always can") from error


class Encoder:
    """Both towers of an open_clip model, with what feeds them.

    Args:
        model: an open_clip model; a DistributedDataParallel wrapper does not belong here.
        precision: fp32, or autocast to fp16 (amp) or bfloat16 (amp_bf16). Features leave as fp32 in any case.
    """

    def __init__(
        self,
        model: nn.Module,
        preprocess: Preprocess,
        tokenizer: Tokenizer,
        device: str | torch.device = "cpu",
        precision: str = "fp32",
    ) -> None:
        if precision not in PRECISIONS:
            raise InputError(f"there is no precision {precision!r}; choose from {', '.join(PRECISIONS)}")
        self.model = model
        self.preprocess = preprocess
        self.tokenizer = tokenizer
        self.device = torch.device(device)
        self.precision = precision

    def encode_image(self, images: Tensor) -> Tensor:
        """[B, 3, H, W] -> [B, D], not normalised, as clip_benchmark expects it."""
        with torch.no_grad(), self._autocast():
            images = images.to(self.device, self._image_dtype())
            features: Tensor = self.model.encode_image(images)  # type: ignore[operator]
        return self._checked("image features", features)

    def _image_dtype(self) -> torch.dtype:
        """fp32, unless the weights themselves are half (`--precision bf16` and its like)."""
        first = next((one for one in self.model.parameters() if one.is_floating_point()), None)
        half = self.precision == "fp32" and first is not None and first.dtype in (torch.float16, torch.bfloat16)
        return first.dtype if half and first is not None else torch.float32

    def encode_text(self, tokens: Tensor) -> Tensor:
        """[B, L] -> [B, D], not normalised."""
        with torch.no_grad(), self._autocast():
            features: Tensor = self.model.encode_text(tokens.to(self.device))  # type: ignore[operator]
        return self._checked("text features", features)

    def unit_images(self, images: Tensor) -> Tensor:
        return normalize(self.encode_image(images), dim=-1)

    def unit_texts(self, texts: Sequence[str]) -> Tensor:
        return normalize(self.encode_text(self.tokenizer(texts)), dim=-1)

    def _autocast(self) -> AbstractContextManager[None]:
        if self.precision == "fp32":
            return nullcontext()
        half = self.precision == "amp" and self.device.type != "cpu"  # fp16 on a CPU has no use
        return torch.autocast(self.device.type, dtype=torch.float16 if half else torch.bfloat16)

    @staticmethod
    def _checked(name: str, features: Tensor) -> Tensor:
        features = features.float()
        require_finite(name, features)
        return features


@contextmanager
def in_evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Switch to evaluation, and give every module its own mode back: a locked tower may be in it already."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
