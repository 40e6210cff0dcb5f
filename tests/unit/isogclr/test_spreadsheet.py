"""Cells of CSV files."""

from __future__ import annotations

import math

import pytest

from isogclr.spreadsheet import cell


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "-", "--name"])
def test_what_would_run(text: str) -> None:
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["-1.5", "+2", "-1e-05", "-inf", "a=b", "", "'=1", "0001", -1.5, 3, None])
def test_what_stays(value: object) -> None:
    assert cell(value) is value


def test_numbers_stay_numbers() -> None:
    assert math.isnan(cell(math.nan))
