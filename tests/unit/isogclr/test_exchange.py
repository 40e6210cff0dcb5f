"""The words of the exchange."""

from __future__ import annotations

import pytest
import torch

from isogclr.distributed import Ranks
from isogclr.errors import InputError
from isogclr.exchange import gather_updates, pack, unpack
from isogclr.losses import CyCLIPLoss, ISogCLRLoss, SampleState

COLUMNS = ("b", "a")


def some_state(samples: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, SampleState]:
    generator = torch.Generator().manual_seed(1)
    columns = {name: torch.randn(samples, generator=generator, dtype=dtype) for name in sorted(COLUMNS)}
    return torch.arange(samples) + 2**40, SampleState(columns, torch.arange(samples) + 7)


def test_a_line_is_a_row_its_visits_and_the_columns_in_the_order_asked_for() -> None:
    rows, state = some_state(3)
    lines = pack(rows, state, COLUMNS)
    assert lines.dtype == torch.int32
    assert lines[1, :3].tolist() == [1, 2**8, 8]  # little-endian: 2⁴⁰ + 1, and 8 visits
    assert torch.equal(lines[:, 3].contiguous().view(torch.float32), state.columns["b"])
    assert torch.equal(lines[:, 4].contiguous().view(torch.float32), state.columns["a"])


def test_bytes_of_isogclr() -> None:
    state = ISogCLRLoss().initial_state(5)
    lines = pack(torch.arange(5), state, tuple(state.columns))
    assert lines.shape == (5, 9)
    assert lines.element_size() * lines.shape[1] == 36


@pytest.mark.parametrize("samples", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_was_packed_is_unpacked(samples: int, dtype: torch.dtype) -> None:
    rows, state = some_state(samples, dtype)
    found, new = unpack(pack(rows, state, COLUMNS, dtype), COLUMNS, dtype)
    assert torch.equal(found, rows)
    assert torch.equal(new.visits, state.visits)
    for name, value in state.columns.items():
        assert torch.equal(new.columns[name], value)


def test_a_loss_without_columns_sends_its_visits() -> None:
    rows, state = torch.arange(3), SampleState({}, torch.tensor([4, 5, 6]))
    found, new = unpack(pack(rows, state, ()), ())
    assert torch.equal(found, rows)
    assert new.visits.tolist() == [4, 5, 6]
    assert new.columns == {}


class ThreeRanks(Ranks):
    """Of which this one has the largest batch of four, and the others the same lines as this one."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 3

    def capacity(self, batch: int, device: torch.device) -> int:
        return 4

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        return torch.cat([own] * 3)


def test_a_smaller_batch_is_filled_up_with_rows_that_nobody_stores() -> None:
    rows, state = torch.tensor([2, 0, 2]), some_state(3)[1]
    table = SampleState.zeros(COLUMNS, 3)
    found, new = gather_updates(ThreeRanks(), rows, state)
    assert found.tolist() == [2, 0, 2, -1] * 3
    table.put(found, new)
    assert table.visits.tolist() == [8, 0, 7]  # of a row that occurs twice the first occurrence counts
    second, nothing, first = table.columns["a"].tolist()
    assert [first, second, nothing] == [*state.columns["a"][:2].tolist(), 0.0]


def test_a_loss_without_state_has_nothing_to_exchange() -> None:
    features = torch.nn.functional.normalize(torch.randn(4, 3), dim=1)
    output = CyCLIPLoss()(features, features, logit_scale=torch.tensor(10.0))
    with pytest.raises(InputError, match="state is None, but only a loss with state_columns"):
        gather_updates(Ranks(), torch.arange(4), output.state)
