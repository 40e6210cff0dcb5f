"""Tables of image files and captions, as open_clip reads them: the columns, their defaults, the one reader.

Light to import, because the command line takes its defaults from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isogclr.errors import missing_shard, unreadable_shard

_SEPARATORS = {"\t": "$'\\t'", ",": ",", ";": "';'", "|": "'|'"}  # and how each is written in a shell


@dataclass(frozen=True)
class CsvColumns:
    """How open_clip reads a table: `--csv-separator`, `--csv-img-key`, `--csv-caption-key`."""

    separator: str = "\t"
    image: str = "filepath"
    caption: str = "title"


def is_table(name: str) -> bool:
    """open_clip's rule for data whose type it is not told: the end of the name decides."""
    return name.rpartition(".")[2] in ("csv", "tsv")


def read_table(path: str, columns: CsvColumns, *, as_text: bool) -> tuple[list[Any], list[Any]]:
    """Image files and captions, one of each per row.

    Args:
        as_text: every field as it is written, an empty one as "". False infers types as open_clip does when it
            trains: what an empty caption becomes is then up to pandas, and a type may change for all rows when one
            is added.
    """
    import pandas  # noqa: PLC0415 (slow to import; shards do without)

    options: dict[str, Any] = {"dtype": str, "keep_default_na": False} if as_text else {}
    try:
        table = pandas.read_csv(path, sep=columns.separator, **options)
    except FileNotFoundError:
        raise missing_shard(path) from None
    except pandas.errors.ParserError as error:
        reason = f"{str(error).strip()}; if its fields are not separated by {columns.separator!r}, say by what with"
        raise unreadable_shard(path, f"{reason} --csv-separator") from error
    except (OSError, ValueError) as error:
        raise unreadable_shard(path, str(error)) from error
    for flag, column in (("--csv-img-key", columns.image), ("--csv-caption-key", columns.caption)):
        if column not in table.columns:
            raise unreadable_shard(path, _no_column(flag, column, list(map(str, table.columns))))
    return table[columns.image].tolist(), table[columns.caption].tolist()


def _no_column(flag: str, column: str, found: list[str]) -> str:
    names = ", ".join(map(repr, found))
    if len(found) == 1:
        separator = next((one for one in _SEPARATORS if one in found[0]), None)
        if separator is not None:
            return (
                f"it has no column {column!r}, only one, {names}: its fields are separated by {separator!r}; say "
                f"so with --csv-separator {_SEPARATORS[separator]}"
            )
    return f"it has no column {column!r}, only {names}: say which with {flag}"
