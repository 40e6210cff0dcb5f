"""A sample that is a picture and its caption: which of its files count, and what the model gets of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image
from torch import Tensor

from isogclr.shard_index.sample_keys import CAPTION_SUFFIX, IMAGE_SUFFIXES


class PairFiles:
    """Image and caption of a sample of a shard, as open_clip's pipeline takes them."""

    parts = "image or caption"
    example = "000001.jpg and 000001.txt"
    complaint = "has a caption and an image; found the extensions {found}, expected .txt and one of " + ", ".join(
        f".{extension}" for extension in IMAGE_SUFFIXES
    )

    def choose(self, sample: Mapping[str, Any]) -> tuple[bytes, bytes] | None:
        """What is kept of the files of a sample; the buffer of the shuffle holds nothing else."""
        image = next((sample[extension] for extension in IMAGE_SUFFIXES if extension in sample), None)
        return None if image is None or CAPTION_SUFFIX not in sample else (image, sample[CAPTION_SUFFIX])

    def decode(self, content: tuple[bytes, bytes]) -> tuple[Image.Image, str]:
        """As open_clip's pipeline does, but nothing else of the sample: metadata is not unpacked for nothing."""
        image, caption = content
        text = caption.decode("utf-8")
        with Image.open(io.BytesIO(image)) as opened:
            return opened.convert("RGB"), text


@dataclass(frozen=True)
class PairInputs:
    """From a decoded pair to the inputs of the model. Draws from the global random generators."""

    transform: Callable[[Any], Tensor]
    tokenizer: Callable[[Any], Tensor]

    def __call__(self, pair: tuple[Any, str]) -> tuple[Tensor, ...]:
        image, caption = pair
        return self.transform(image), self.tokenizer(caption)[0]
