"""Columns, their bytes, and what every row size must satisfy."""

from __future__ import annotations

import struct

import pytest

from isogclr.errors import InputError
from isogclr.state.layout import BLOCK_ROWS, PAGE_BYTES
from isogclr.state.schema import Schema, schema_for
from support.store_cases import GLOBAL_TEMPERATURE, ISOGCLR, ISOGCLR_ADAM, STATELESS


def test_the_row_of_isogclr_byte_by_byte():
    row = ISOGCLR.zeros(1)
    for position, name in enumerate(
        (
            "image_temperature",
            "image_log_mean",
            "image_momentum",
            "text_temperature",
            "text_log_mean",
            "text_momentum",
        )
    ):
        row[name] = position + 0.5
    row["visits"], row["last_epoch"] = 7, 3
    assert row.tobytes() == struct.pack("<6f2I", 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 7, 3)


@pytest.mark.parametrize(
    ("schema", "row_bytes"), [(ISOGCLR, 32), (ISOGCLR_ADAM, 40), (GLOBAL_TEMPERATURE, 16), (STATELESS, 8)]
)
def test_row_sizes_and_whole_pages_a_block(schema, row_bytes):
    assert schema.row_bytes == row_bytes
    assert BLOCK_ROWS * schema.row_bytes % PAGE_BYTES == 0


def test_the_counters_follow_the_columns_of_a_loss():
    assert schema_for(["temperature"]).names == ("temperature", "visits", "last_epoch")
    assert schema_for([]).names == ("visits", "last_epoch")
    assert schema_for(["temperature"]) == Schema(("temperature",))


@pytest.mark.parametrize("schema", [ISOGCLR, ISOGCLR_ADAM, GLOBAL_TEMPERATURE, STATELESS])
def test_a_description_reads_back(schema):
    assert Schema.from_description(schema.describe()) == schema


@pytest.mark.parametrize("columns", [("visits",), ("a", "a"), ("A",), ("1a",), ("",), ("a b",)], ids=repr)
def test_names_that_can_not_be_columns_are_refused(columns):
    with pytest.raises(InputError, match="rename the columns"):
        Schema(columns)
