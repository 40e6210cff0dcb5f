"""From what `--train-data` says to the shards of a data set.

The rules are open_clip's, which takes them from webdataset: `::` separates the parts of a mix, `${NAME}` stands for
the environment variable `WDS_NAME`, braces expand as in a shell, and a list is taken as it is. A single `.csv` or
`.tsv` is a table. (With `--train-data-upsampling-factors` open_clip leaves `${NAME}` alone: pass its list of shards
then.)

Training reads its shards in the order of open_clip's own function (`training/open_clip_bridge.py`). The rules stand
here again because this library never imports open_clip_train, and `isogclr index` and `isogclr report` do without
torch, which comes with it. `test_patterns_expand_as_in_open_clip` holds the two together.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from typing import Literal

from braceexpand import braceexpand

from isogclr.csv_table import CsvColumns, is_table, read_table
from isogclr.errors import InputError

DatasetType = Literal["auto", "webdataset", "csv"]
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SUBSTITUTIONS = 10  # a variable may name others, to this depth


def expand_sources(sources: str | Sequence[str]) -> list[str]:
    """The addresses of all shards, in order and with repetitions."""
    if not isinstance(sources, str):
        return list(sources)
    urls: list[str] = []
    for part in sources.split("::"):
        pattern = _substitute(part)
        try:
            urls.extend(braceexpand(pattern))
        except ValueError:
            raise InputError(f"sources: the braces in {pattern!r} do not pair up") from None
    return urls


def _substitute(text: str) -> str:
    for _ in range(_SUBSTITUTIONS):
        replaced = _VARIABLE.sub(_environment, text)
        if replaced == text:
            break
        text = replaced
    return text


def _environment(match: re.Match[str]) -> str:
    name = f"WDS_{match.group(1)}"
    if name not in os.environ:
        raise InputError(f"sources: {match.group(0)} stands for the environment variable {name}, which is not set")
    return os.environ[name]


def is_csv(sources: str | Sequence[str], dataset_type: DatasetType = "auto") -> bool:
    """open_clip decides by the end of the name, unless it is told."""
    if dataset_type == "auto":
        return isinstance(sources, str) and is_table(sources)
    return dataset_type == "csv"


def csv_digests(path: str, columns: CsvColumns, prefixes: Sequence[int] = ()) -> tuple[int, bytes, list[bytes]]:
    """Number of rows, digest of all of them, and digests of the first so many.

    A table has no keys: its samples are known by position. The digest tells a table that has grown at its end,
    whose old rows keep their place, from one that was sorted or cut.
    """
    # As text: a type that pandas infers may change for all rows when one is added.
    images, captions = read_table(path, columns, as_text=True)
    digest = hashlib.blake2b(digest_size=16)
    digests = {0: digest.digest()}
    wanted = set(prefixes)
    for position, (image, caption) in enumerate(zip(images, captions, strict=True), start=1):
        for text in (str(image), str(caption)):
            data = text.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "little") + data)
        if position in wanted:
            digests[position] = digest.digest()
    return len(images), digest.digest(), [digests.get(count, b"") for count in prefixes]
