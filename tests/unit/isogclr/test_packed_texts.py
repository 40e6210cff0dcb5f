"""Many strings in one array come back as they were."""

from __future__ import annotations

import numpy as np
import pytest

from isogclr.packed_texts import PackedTexts


@pytest.mark.parametrize("texts", [[], ["a"], ["", "ü", "", "\udcff.png", "日本"], list(map(str, range(1000)))])
def test_texts_come_back(texts: list[str]) -> None:
    packed = PackedTexts(iter(texts))
    assert list(packed) == texts
    assert len(packed) == len(texts)


def test_what_is_no_text_is_written_as_one() -> None:
    assert list(PackedTexts([1.5, np.nan])) == ["1.5", "nan"]
