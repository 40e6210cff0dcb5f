"""Features of frozen encoders as pictures and as a table: what goes in comes out."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import open_clip
import torch
from PIL import Image
from torch.nn.functional import layer_norm

from support.data_scripts import script

features = script("emoji_features")


def test_a_picture_holds_its_feature() -> None:
    numbers = np.random.default_rng(0).normal(size=(3, 1280)).astype(np.float32)
    numbers[0, :2] = [9.0, -9.0]  # cut
    pictures = features.as_pictures(numbers)
    assert pictures.shape == (3, 21, 21, 3)
    stream = io.BytesIO()
    Image.fromarray(pictures[0]).save(stream, "PNG")
    pixels = np.asarray(Image.open(stream), dtype=np.float32) / 255
    read = ((pixels - 0.5) / 0.125).reshape(-1)  # --image-mean 0.5 … --image-std 0.125 …
    np.testing.assert_allclose(read[:1280], numbers[0].clip(-4, 4), atol=4 / 255 + 1e-5)
    np.testing.assert_allclose(read[1280:], 0, atol=4 / 255 + 1e-5)


def test_the_tower_is_the_table_of_features(tmp_path: Path) -> None:
    captions = ["honeybee", "1st place medal", "red, apple fruit"]
    table = np.random.default_rng(1).normal(size=(3, 384)).astype(np.float32)
    features.write_model(tmp_path, captions, table, tmp_path)
    config = json.loads((tmp_path / "open_clip_config.json").read_text(encoding="utf-8"))["model_cfg"]
    model = open_clip.CustomTextCLIP(**config).eval()
    tokenizer = open_clip.get_tokenizer(f"local-dir:{tmp_path}")
    tokens = tokenizer([*captions, "never heard of"])
    assert tokens[:, 0].tolist() == [2, 3, 4, 1]
    with torch.no_grad():
        found = model.text.pooler(model.text.transformer(input_ids=tokens), (tokens != 0).long())
    torch.testing.assert_close(found[:3], layer_norm(torch.from_numpy(table), (384,)), rtol=1e-4, atol=1e-4)
    assert model.encode_image(torch.zeros(2, 3, 21, 21)).shape == (2, features.EMBED_DIM)
