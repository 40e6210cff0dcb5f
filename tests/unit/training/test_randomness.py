"""Seeds that never change, and generators that are put back: compared by the numbers that they give next."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.randomness import (
    Replay,
    capture,
    derive_seed,
    generators_preserved,
    restore,
    seed_augmentation,
    seed_everything,
)

CPU = torch.device("cpu")
SEEDS = st.integers(0, (1 << 63) - 1)
Draws = tuple[float, float, float, float, float]


@pytest.fixture(autouse=True)
def _generators_of_other_tests() -> Any:
    with generators_preserved():
        yield


def draw() -> Draws:
    """From each generator; `gauss` of Python and `randn` of numpy keep every second number for later."""
    numpy_draws = float(np.random.rand()), float(np.random.randn())  # noqa: NPY002 (the global one is meant)
    return random.random(), random.gauss(0, 1), *numpy_draws, float(torch.rand(()))


class TestDerivedSeeds:
    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ((), 2847183694713211083),
            ((0,), 2631537505891389924),
            (("samples", 1, 2, 0, 3, 1), 5753308953316042640),
            (("augmentation", 0, 0, 7), 8265170543888676097),
        ],
    )
    def test_they_are_those_of_earlier_releases(self, parts: tuple[int | str, ...], expected: int) -> None:
        """A run that was begun with them goes on with them: its order and augmentations depend on the numbers."""
        assert derive_seed(*parts) == expected

    @given(st.lists(st.one_of(st.integers(), st.sampled_from(["samples", "ä", ""])), max_size=4))
    def test_63_bits(self, parts: list[int | str]) -> None:
        torch.Generator().manual_seed(derive_seed(*parts))  # takes no more
        assert derive_seed(*parts).bit_length() <= 63

    def test_parts_are_not_run_together(self) -> None:
        different = [(1, 23), (12, 3), (123,), ("123",), ("1", 23), ("1, 23",), (1, 23, 0), (23, 1)]
        assert len({derive_seed(*parts) for parts in different}) == len(different)


class TestSeeding:
    def test_a_rank_adds_its_number_as_in_open_clip(self) -> None:
        seed_everything(3, 2)
        found = draw()
        seed_everything(5)
        assert draw() == found
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        torch.manual_seed(5)
        assert draw() == found

    @settings(max_examples=20)
    @given(SEEDS)
    def test_augmentation_seeds_all_three(self, seed: int) -> None:
        seed_augmentation(seed)
        found = draw()
        draw()
        seed_augmentation(seed)
        assert draw() == found
        seed_augmentation(seed ^ 1)
        assert not set(draw()) & set(found)


class TestPreserved:
    def test_what_is_drawn_inside_is_not_noticed_outside(self) -> None:
        seed_everything(1)
        expected = [draw(), draw()]
        seed_everything(1)
        found = [draw()]
        with generators_preserved():
            seed_augmentation(99)
            draw()
        found.append(draw())
        assert found == expected

    def test_an_error_does_not_keep_them(self) -> None:
        seed_everything(1)
        expected = draw()
        seed_everything(1)
        with pytest.raises(KeyError), generators_preserved():
            raise KeyError(draw())
        assert draw() == expected


class TestCapture:
    @settings(max_examples=10)
    @given(seed=st.integers(0, 1 << 31), before=st.integers(0, 3))
    def test_round_trip_through_json(self, seed: int, before: int) -> None:
        seed_everything(seed)
        for _ in range(before):
            draw()
        random.gauss(0, 1)
        np.random.randn()  # noqa: NPY002 (the second of its pair is part of the state)
        state = json.loads(json.dumps(capture(CPU)))
        expected = [draw() for _ in range(3)]
        seed_everything(seed + 1)
        restore(state, CPU)
        assert [draw() for _ in range(3)] == expected

    def test_a_state_can_be_restored_twice(self) -> None:
        state = capture(CPU)
        expected = draw()
        for _ in range(2):
            restore(state, CPU)
            assert draw() == expected

    def test_a_commit_has_these_names(self) -> None:
        """They are part of the format: an older commit must still be read."""
        state = capture(CPU)
        assert list(state) == ["torch", "python", "numpy"]
        assert state["numpy"][0] == "MT19937"


class TestReplay:
    def test_dropout_drops_the_same_again(self) -> None:
        ones = torch.ones(200)
        replay = Replay(CPU)
        first = torch.nn.functional.dropout(ones)
        second = torch.nn.functional.dropout(ones)
        assert not torch.equal(first, second)
        for _ in range(2):
            replay.restore()
            assert torch.equal(torch.nn.functional.dropout(ones), first)
        assert torch.equal(torch.nn.functional.dropout(ones), second)

    def test_generators_that_no_model_draws_from_go_on(self) -> None:
        seed_everything(1)
        expected = [random.random() for _ in range(2)]
        seed_everything(1)
        replay = Replay(CPU)
        found = [random.random()]
        replay.restore()
        assert [*found, random.random()] == expected
