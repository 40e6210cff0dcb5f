"""The losses and the store agree on the columns of a row, without knowing each other."""

from __future__ import annotations

import pytest

from isogclr.config import ISogCLRConfig
from isogclr.losses import LOSSES, ISogCLRLoss, SogCLRLoss
from isogclr.state.schema import Schema, schema_for
from support.store_cases import GLOBAL_TEMPERATURE, ISOGCLR, ISOGCLR_ADAM, STATELESS


@pytest.mark.parametrize(
    ("loss", "schema", "row_bytes"),
    [
        (ISogCLRLoss(), ISOGCLR, 32),
        (ISogCLRLoss(ISogCLRConfig.preset("paper", temperature_optimizer="adam")), ISOGCLR_ADAM, 40),
        (ISogCLRLoss(ISogCLRConfig.preset("paper", temperature_scope="global")), GLOBAL_TEMPERATURE, 16),
        (SogCLRLoss(), GLOBAL_TEMPERATURE, 16),
    ],
)
def test_schema_of_a_loss(loss: ISogCLRLoss, schema: Schema, row_bytes: int) -> None:
    assert schema_for(loss.state_columns) == schema
    assert schema.row_bytes == row_bytes


def test_the_variants_differ_as_designed() -> None:
    assert set(ISOGCLR_ADAM.names) - set(ISOGCLR.names) == {"image_second_moment", "text_second_moment"}
    assert GLOBAL_TEMPERATURE.names == ("image_log_mean", "text_log_mean", "visits", "last_epoch")


@pytest.mark.parametrize("name", ["clip", "siglip", "cyclip", "vicreg"])
def test_losses_without_state_keep_the_counters(name: str) -> None:
    assert schema_for(LOSSES[name].state_columns) == STATELESS
    assert STATELESS.names == ("visits", "last_epoch")
