"""Frozen encoders, computed once: emoji shards in, shards of their features out, and the model that reads them.

    pip install --no-deps -r scripts/study/requirements.txt
    python scripts/data/emoji_features.py /data/emoji-128 /data/emoji-frozen

An epoch over pictures costs minutes, an epoch over features seconds. Nothing in the trainer knows about it:

* the feature of a picture (EfficientNet-lite0, ImageNet weights, 1280 numbers) is itself a small picture: each
  number, standardised over the training pictures and cut at ±4 standard deviations, is one byte of a 21 × 21 RGB
  image. A ViT whose only patch is the whole picture is then a network on that feature;
* the feature of a caption (MiniLM-L6, the mean of its tokens, 384 numbers) is a row of an embedding table: the
  tokenizer has one token for each caption, the tower is a BERT without layers, frozen by `--lock-text`, and
  open_clip puts its two-layer head on top.

So with `--model local-dir:OUT/model --lock-text --image-mean 0.5 0.5 0.5 --image-std 0.125 0.125 0.125 --aug-cfg
scale="(1,1)"` every loss trains heads on frozen encoders. A caption that was in no shard has no token: only
captions of the shards can be encoded.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from frozen_encoders import Features, encode_texts, image_encoder
from PIL import Image

from isogclr.progress_bars import progress_bar
from isogclr.shard_index.tar_samples import samples_by_key

SIDE = 21  # 21 · 21 · 3 = 1323 bytes hold 1280 numbers
LIMIT = 4.0  # standard deviations
EMBED_DIM, WIDTH, HEADS = 128, 128, 4


@dataclass(frozen=True)
class Sample:
    key: str
    image: Image.Image
    caption: str


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path, help="folder of emoji shards, from scripts/data/emoji.py")
    parser.add_argument("target", type=Path, help="folder to write; must not exist")
    options = parser.parse_args()
    if options.target.exists():
        raise SystemExit(f"{options.target} exists: remove it, or name another folder")
    shards = sorted(options.source.glob("*.tar"))
    if not any(shard.name.startswith("train-") for shard in shards):
        raise SystemExit(f"{options.source} has no train-*.tar: make it with scripts/data/emoji.py study")
    partial = options.target.with_name(options.target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(shards, partial, final=options.target)
    shutil.copy(options.source / "sizes.json", partial / "sizes.json")
    partial.rename(options.target)
    print(f"{len(shards)} shards of features and a model in {options.target}")


def write(shards: list[Path], folder: Path, final: Path) -> None:
    """Encode all shards; numbers are scaled by what the training shards hold."""
    samples = {shard: list(read(shard)) for shard in shards}
    encode_images = image_encoder()
    images = {
        shard: encode_images([one.image for one in samples[shard]]) for shard in progress_bar(shards, unit="shard")
    }
    training = np.concatenate([images[shard] for shard in shards if shard.name.startswith("train-")])
    mean, deviation = training.mean(axis=0), training.std(axis=0) + 1e-6
    for shard in shards:
        pictures = as_pictures((images[shard] - mean) / deviation)
        _write_shard(folder / shard.name, samples[shard], pictures)
    captions = sorted({one.caption for members in samples.values() for one in members})
    write_model(folder / "model", captions, encode_texts(captions), final / "model")


def read(shard: Path) -> Iterator[Sample]:
    """The pairs of a shard, in order."""
    for key, files in samples_by_key(str(shard)).items():
        image = Image.open(io.BytesIO(files["webp"])).convert("RGB")
        yield Sample(key, image, " ".join(files["txt"].decode().split()))


def as_pictures(features: Features) -> npt.NDArray[np.uint8]:
    """[N, D] of standard deviations → [N, SIDE, SIDE, 3]; unused bytes are the middle value."""
    middle = np.zeros((len(features), SIDE * SIDE * 3), dtype=np.float32)
    middle[:, : features.shape[1]] = features
    scaled = (np.clip(middle, -LIMIT, LIMIT) / LIMIT + 1) / 2 * 255
    return np.rint(scaled).astype(np.uint8).reshape(-1, SIDE, SIDE, 3)


def _write_shard(path: Path, samples: list[Sample], pictures: npt.NDArray[np.uint8]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for sample, picture in zip(samples, pictures, strict=True):
            buffer = io.BytesIO()
            Image.fromarray(picture).save(buffer, format="PNG", compress_level=0)
            for ending, data in (("png", buffer.getvalue()), ("txt", sample.caption.encode())):
                member = tarfile.TarInfo(f"{sample.key}.{ending}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))


def write_model(folder: Path, captions: list[str], features: Features, final: Path) -> None:
    """An open_clip folder: the vision head starts at random, the text tower is the table of features."""
    from tokenizers import Tokenizer, models  # noqa: PLC0415
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast  # noqa: PLC0415

    tower = folder / "text"
    tower.mkdir(parents=True)
    names = ["[PAD]", "[UNK]", *captions]
    words = Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]")
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=features.shape[1],
        num_hidden_layers=0,
        num_attention_heads=1,
        max_position_embeddings=2,
        hidden_dropout_prob=0.0,
    )
    model = BertModel(config, add_pooling_layer=False)
    with torch.no_grad():
        for parameter in (
            model.embeddings.position_embeddings.weight,
            model.embeddings.token_type_embeddings.weight,
        ):
            parameter.zero_()
        model.embeddings.word_embeddings.weight.zero_()
        model.embeddings.word_embeddings.weight[2:] = torch.from_numpy(features)
    model.save_pretrained(tower)
    for place in (folder, tower):
        tokenizer.save_pretrained(place)
    settings = {
        "embed_dim": EMBED_DIM,
        "vision_cfg": {
            "image_size": SIDE,
            "patch_size": SIDE,
            "layers": 1,
            "width": WIDTH,
            "head_width": WIDTH // HEADS,
            "pool_type": "avg",
        },
        "text_cfg": {
            "hf_model_name": str(final.resolve() / "text"),
            "hf_tokenizer_name": str(final.resolve()),
            "hf_proj_type": "mlp",
            "hf_pooler_type": "mean_pooler",
            "context_length": 2,
        },
    }
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": settings}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
