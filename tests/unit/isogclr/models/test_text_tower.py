"""A DistilBERT written as a BERT computes the same."""

from __future__ import annotations

import json
from pathlib import Path

import open_clip
import pytest
import torch
from transformers import BertModel, DistilBertConfig, DistilBertModel

from isogclr.errors import ModelError
from isogclr.models.text_tower import convert, is_distilbert
from support.shard_writing import WORDS


def write_distilbert(folder: Path) -> DistilBertModel:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    config = DistilBertConfig(
        vocab_size=len(vocabulary), dim=32, n_layers=3, n_heads=4, hidden_dim=64, max_position_embeddings=16
    )
    torch.manual_seed(0)
    model = DistilBertModel(config).eval()
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    kind = {"tokenizer_class": "DistilBertTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")
    return model


def test_same_output(tmp_path: Path) -> None:
    theirs = write_distilbert(tmp_path / "theirs")
    assert is_distilbert(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "ours")
    assert not is_distilbert(tmp_path / "ours")
    ours = BertModel.from_pretrained(tmp_path / "ours", add_pooling_layer=False).eval()
    tokens = torch.tensor([[2, 7, 9, 3, 0, 0], [2, 5, 6, 7, 8, 3]])
    mask = (tokens != 0).long()
    with torch.no_grad():
        expected = theirs(input_ids=tokens, attention_mask=mask).last_hidden_state
        found = ours(input_ids=tokens, attention_mask=mask).last_hidden_state
    present = mask.bool()
    torch.testing.assert_close(found[present], expected[present], rtol=1e-5, atol=1e-6)


def test_without_weights_only_the_sizes_are_written(tmp_path: Path) -> None:
    write_distilbert(tmp_path / "theirs")
    convert(tmp_path / "theirs", tmp_path / "ours", with_weights=False)
    assert not list((tmp_path / "ours").glob("*.safetensors"))
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["num_hidden_layers"] == 3


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json"):
        is_distilbert(tmp_path)


def test_open_clip_still_does_not_know_distilbert(tmp_path: Path) -> None:
    """When this fails, open_clip has learned it, and `text_tower` can go."""
    write_distilbert(tmp_path / "theirs")
    with pytest.raises((TypeError, KeyError)):
        open_clip.hf_model.HFTextEncoder(str(tmp_path / "theirs"), output_dim=8, proj_type="linear")
