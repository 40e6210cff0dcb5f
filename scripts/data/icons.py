"""Icons with their names, 250,000 of them, from the npm package @iconify/json.

    npm pack @iconify/json@2.2.535                                   # 104 MB
    python scripts/data/icons.py iconify-json-2.2.535.tgz DATA/icons

Emoji and logos are left out, and so are aliases. Of each set one icon per name without words of style ("outline",
"filled", "24"): the shortest name, which is the plainest. The caption is that name with spaces for hyphens. The
sets of some authors are kept apart, whole, for validation and for testing: a method is tested on drawings by hands
that it has never seen. Each set has its own licence, listed in `sets.json`; nothing of it is in this repository.

What is written:

    pictures.npy   [N, 32, 32] uint8    dark on white, as grey
    names.txt      N lines
    sets.json      per set: licence, split, how many icons
    split.npy      [N] int8             0 training, 1 validation, 2 test
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from emoji_packages import svg
from npm_package import read_files
from PIL import Image

from isogclr.progress_bars import progress_bar

PACKAGE = "@iconify/json@2.2.535"
PIXELS = 32
LEFT_OUT = ("Emoji", "Logos", "Flags / Maps")  # categories: other studies, brand names, names of countries
STYLE = frozenset(
    (
        *("outline", "outlined", "filled", "fill", "line", "lined", "solid", "bold", "thin", "light", "duotone"),
        *("regular", "sharp", "round", "rounded", "twotone", "linear", "broken", "bulk", "stroke", "color"),
        *("colored", "flat", "mono", "monotone", "alt", "variant", "baseline", "mini", "micro", "sm", "lg", "xl"),
        *("small", "large", "medium"),
    )
)
HELD_OUT = {"validation": 0.05, "test": 0.1}  # shares of the authors, by a hash of their names


@dataclass(frozen=True)
class Icon:
    prefix: str
    name: str
    svg: str


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("package", type=Path, help=f"what `npm pack {PACKAGE}` has fetched")
    parser.add_argument("target", type=Path, help="folder to write; must not exist")
    parser.add_argument("--jobs", type=int, default=1, help="processes that render (default: 1)")
    options = parser.parse_args()
    if options.target.exists():
        raise SystemExit(f"{options.target} exists: remove it, or name another folder")
    icons, sets = read_icons(options.package)
    pictures, kept = render_all(icons, options.jobs)
    icons = [icon for icon, is_kept in zip(icons, kept, strict=True) if is_kept]
    splits = {prefix: split_of(one["author"]) for prefix, one in sets.items()}
    partial = options.target.with_name(options.target.name + ".partial")
    partial.mkdir(parents=True, exist_ok=True)
    np.save(partial / "pictures.npy", pictures)
    np.save(partial / "split.npy", np.array([splits[icon.prefix] for icon in icons], dtype=np.int8))
    (partial / "names.txt").write_text("".join(f"{icon.name}\n" for icon in icons), encoding="utf-8")
    for prefix, one in sets.items():
        one["split"] = ("train", *HELD_OUT)[splits[prefix]]
        one["icons"] = sum(icon.prefix == prefix for icon in icons)
    (partial / "sets.json").write_text(json.dumps(sets, indent=1), encoding="utf-8")
    partial.rename(options.target)
    print(f"{len(icons):,} icons of {len(sets)} sets in {options.target}")


def read_icons(package: Path) -> tuple[list[Icon], dict[str, dict[str, Any]]]:
    """The icons that count, and the licence of each set."""
    files = read_files(package, PACKAGE, "json/*.json")
    icons: list[Icon] = []
    sets: dict[str, dict[str, Any]] = {}
    for content in files.values():
        one = json.loads(content)
        if one.get("info", {}).get("category") in LEFT_OUT:
            continue
        chosen = plainest(one["icons"])
        info = one["info"]
        licence = info["license"].get("spdx") or info["license"]["title"]
        sets[one["prefix"]] = {"author": info["author"]["name"], "licence": licence}
        icons += [Icon(one["prefix"], name, svg(one, one["icons"][icon])) for name, icon in chosen.items()]
    return icons, sets


def plainest(icons: dict[str, Any]) -> dict[str, str]:
    """For each name without words of style, the icon that has the fewest letters."""
    found: dict[str, str] = {}
    for icon in sorted(icons, key=lambda name: (len(name), name)):
        name = without_style(icon)
        if name:
            found.setdefault(name, icon)
    return found


def without_style(icon: str) -> str:
    """`calendar-check-outline-24` → `calendar check`; empty if nothing but style or numbers is left."""
    words = [word for word in icon.lower().split("-") if word not in STYLE and not re.fullmatch(r"\d+(px)?", word)]
    return " ".join(words) if any(re.search("[a-z]", word) for word in words) else ""


def split_of(author: str) -> int:
    """0, 1 or 2, from the author's name alone: what comes later changes nothing."""
    place = int.from_bytes(hashlib.sha256(author.encode()).digest()[:8], "big") / 2**64
    if place < HELD_OUT["validation"]:
        return 1
    return 2 if place < HELD_OUT["validation"] + HELD_OUT["test"] else 0


def render_all(icons: list[Icon], jobs: int) -> tuple[npt.NDArray[np.uint8], list[bool]]:
    """Pictures, and for every icon whether it has one: a blank one, or one that can not be drawn, has none."""
    found, kept = [], []
    with multiprocessing.Pool(jobs) as pool:
        for picture in progress_bar(
            pool.imap(render, (icon.svg for icon in icons), chunksize=256), total=len(icons), unit="icon"
        ):
            kept.append(picture is not None)
            if picture is not None:
                found.append(picture)
    return np.stack(found), kept


def render(drawing: str) -> npt.NDArray[np.uint8] | None:
    import resvg_py  # noqa: PLC0415 (only where something is drawn)

    try:
        data = resvg_py.svg_to_bytes(
            svg_string=drawing, width=PIXELS, height=PIXELS, background="#ffffff", skip_system_fonts=True
        )
    except ValueError:
        return None
    with Image.open(io.BytesIO(bytes(data))) as opened:
        grey = np.asarray(opened.convert("L"))
    return grey if grey.shape == (PIXELS, PIXELS) and grey.min() != grey.max() else None


def names(folder: Path) -> Iterator[str]:
    """The captions of a folder that this script has written."""
    yield from (folder / "names.txt").read_text(encoding="utf-8").splitlines()


if __name__ == "__main__":
    main()
