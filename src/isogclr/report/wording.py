"""Numbers and strange texts as people read them."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

_KEPT_CONTROLS = "\n\t"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def number(value: Any, digits: int = 3) -> str:
    """So many significant digits; whole numbers with separators; a dash for what is unknown."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:#.{digits}g}".rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def share(value: Any, digits: int = 3) -> str:
    """A fraction as per cent."""
    if value is None or math.isnan(value):
        return "–"
    percent = 100 * value
    if percent == 0 or abs(percent) >= 10 ** (digits - 0.01):  # which would become 1e+02
        return f"{percent:.0f} %"
    return f"{percent:#.{digits}g}".rstrip(".") + " %"


def clean(text: str) -> str:
    """Text that any page may hold: no lone surrogates, no invisible controls. Markup is escaped by the template."""
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return "".join(_REPLACEMENT if _is_control(character) else character for character in text)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc" and character not in _KEPT_CONTROLS
