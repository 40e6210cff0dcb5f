"""Thirds of the classes by size in training, and the recall of each."""

from __future__ import annotations

import pytest
import torch

from isogclr.errors import InputError
from isogclr.evaluation.class_parts import class_parts, class_recalls, part_recalls


def test_thirds_by_size_and_not_by_number() -> None:
    assert class_parts([5, 500, 50, 40, 4, 400]) == {"head": (1, 5), "middle": (2, 3), "tail": (0, 4)}


@pytest.mark.parametrize(
    ("classes", "lengths"), [(3, (1, 1, 1)), (10, (4, 3, 3)), (11, (4, 4, 3)), (100, (34, 33, 33))]
)
def test_what_three_does_not_divide(classes: int, lengths: tuple[int, ...]) -> None:
    parts = class_parts([int(5000 * 0.01 ** (number / (classes - 1))) for number in range(classes)])
    assert tuple(map(len, parts.values())) == lengths
    assert sorted(number for members in parts.values() for number in members) == list(range(classes))
    assert parts["head"][0] == 0
    assert parts["tail"][-1] == classes - 1


def test_no_tail_where_there_is_none() -> None:
    assert class_parts([7, 7, 7, 7]) == {}
    assert class_parts([70, 7]) == {}
    assert part_recalls([0.5] * 4, [7] * 4) == {}


def test_recalls_of_classes_and_parts() -> None:
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    predicted = torch.tensor([0, 0, 0, 1, 1, 0, 0, 0])
    recalls = class_recalls(predicted, labels, 4)
    assert recalls == [0.75, 0.5, 0.0, None]
    assert part_recalls(recalls, [100, 10, 5, 1]) == {"head_recall": 0.625, "middle_recall": 0.0}
    with pytest.raises(InputError, match="7 predictions and 8 labels"):
        class_recalls(predicted[:7], labels, 4)
