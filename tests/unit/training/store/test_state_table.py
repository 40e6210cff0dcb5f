"""What rides on the exchange beside the state of samples."""

from __future__ import annotations

import math

import pytest
import torch

from isogclr.distributed import Ranks
from isogclr.losses import SampleState
from isogclr.state import MemoryStore, schema_for
from training.store.state_table import Settled, StateTable

CPU = torch.device("cpu")


@pytest.mark.parametrize("columns", [(), ("image_temperature",)], ids=["no-state", "state"])
@pytest.mark.parametrize(("bad", "loss"), [(False, 1.5), (False, -2.0), (True, math.nan)])
def test_verdict_and_loss(columns: tuple[str, ...], bad: bool, loss: float) -> None:
    """A loss without state has a line of three words, which is enough for them."""
    table = StateTable(MemoryStore.create(schema_for(columns), 8, "f"), Ranks(), CPU)
    rows = torch.tensor([1, 5])
    state = SampleState({name: torch.ones(2) for name in columns}, torch.ones(2, dtype=torch.int64))
    table.send(rows, state, step=7, epoch=0, taken=True, bad=torch.tensor(bad), loss=torch.tensor(loss))
    assert table.take_settled() is None  # not yet
    assert table.read(rows).visits.tolist() == [1, 1]
    settled = table.take_settled()
    assert settled is not None
    assert (settled.step, settled.is_bad) == (7, bad)
    assert settled.loss == pytest.approx(loss, nan_ok=True)
    assert table.take_settled() is None
    assert isinstance(settled, Settled)
