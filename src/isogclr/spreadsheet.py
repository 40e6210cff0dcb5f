"""Cells of the CSV files that we write, so that a spreadsheet shows what is in them and runs none of it."""

from __future__ import annotations

from typing import Any

_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of a formula


def cell(value: Any) -> Any:
    """Text that begins like a formula gets an apostrophe in front; numbers stay numbers, as text too."""
    if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
