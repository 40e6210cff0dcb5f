"""DistilBERT as a text tower of open_clip.

open_clip 3.3 builds Hugging Face towers of five architectures, and DistilBERT is not one of them: it is missing
from `open_clip.hf_configs`, and its class refuses an argument that open_clip passes. But DistilBERT is BERT with
fewer layers, no token types and no pooler, so its weights fit into a BERT of the same sizes, which open_clip, and
everybody who loads its checkpoints, knows.

Deviation: in training, BERT also applies dropout behind the output projection of attention, where DistilBERT
applies none. In evaluation both compute the same.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from isogclr.errors import ModelError

# DistilBERT's name of a part of a layer, and BERT's.
_LAYER_PARTS = {
    "attention.q_lin": "attention.self.query",
    "attention.k_lin": "attention.self.key",
    "attention.v_lin": "attention.self.value",
    "attention.out_lin": "attention.output.dense",
    "sa_layer_norm": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "output_layer_norm": "output.LayerNorm",
}
_EMBEDDINGS = ("word_embeddings", "position_embeddings", "LayerNorm")
_TOKENIZER_FILES = ("vocab.txt", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def is_distilbert(folder: Path) -> bool:
    """Whether a folder holds a DistilBERT of Hugging Face."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(
            f"{folder} has no config.json, expected a folder that Hugging Face's save_pretrained has written"
        ) from None
    except ValueError as error:
        raise ModelError(f"{folder / 'config.json'} is no JSON ({error}): fetch the model again") from None
    return bool(config.get("model_type") == "distilbert")


def convert(source: Path, target: Path, *, with_weights: bool = True) -> None:
    """Write a DistilBERT as a BERT, with its tokenizer.

    Args:
        source: folder of the DistilBERT: config.json, a tokenizer, and its weights.
        target: folder to write; it must not exist.
        with_weights: False for a tower that starts at random: then only the sizes matter.
    """
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel  # noqa: PLC0415 (slow)

    theirs = DistilBertConfig.from_pretrained(source)
    config = BertConfig(
        vocab_size=theirs.vocab_size,
        hidden_size=theirs.dim,
        num_hidden_layers=theirs.n_layers,
        num_attention_heads=theirs.n_heads,
        intermediate_size=theirs.hidden_dim,
        hidden_act=theirs.activation,
        hidden_dropout_prob=theirs.dropout,
        attention_probs_dropout_prob=theirs.attention_dropout,
        max_position_embeddings=theirs.max_position_embeddings,
        initializer_range=theirs.initializer_range,
        pad_token_id=theirs.pad_token_id,
        type_vocab_size=1,
    )
    partial = target.with_name(f".partial-{target.name}")
    shutil.rmtree(partial, ignore_errors=True)
    if with_weights:
        model = BertModel(config, add_pooling_layer=False)  # type: ignore[no-untyped-call]
        model.load_state_dict(_weights(DistilBertModel.from_pretrained(source), model), strict=True)
        model.save_pretrained(partial)
    else:
        config.save_pretrained(partial)
    for name in _TOKENIZER_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, partial / name)
    partial.rename(target)


def _weights(distilbert: Any, bert: Any) -> dict[str, Any]:
    theirs = distilbert.state_dict()
    found = dict(bert.state_dict())
    found["embeddings.token_type_embeddings.weight"].zero_()
    for ours, name in _names(distilbert.config.n_layers):
        found[ours] = theirs[name]
    return found


def _names(layers: int) -> Iterator[tuple[str, str]]:
    """BERT's name and DistilBERT's of every weight that they share."""
    for part in _EMBEDDINGS:
        for kind in ("weight", "bias") if part == "LayerNorm" else ("weight",):
            yield f"embeddings.{part}.{kind}", f"embeddings.{part}.{kind}"
    for layer in range(layers):
        for theirs, ours in _LAYER_PARTS.items():
            for kind in ("weight", "bias"):
                yield f"encoder.layer.{layer}.{ours}.{kind}", f"transformer.layer.{layer}.{theirs}.{kind}"
