"""Fetch the npm packages that the emoji come from, at fixed versions, and render their drawings.

A package is accepted only if its bytes have the recorded sha512: another version, or another file under the same
version, is refused. Rendering uses no fonts of the machine, so that every machine draws the same pixels.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

REGISTRY_NAMES = {
    "noto": "@iconify-json/noto@1.2.9",
    "noto-v1": "@iconify-json/noto-v1@1.2.5",
    "fxemoji": "@iconify-json/fxemoji@1.2.2",
    "fluent-emoji-flat": "@iconify-json/fluent-emoji-flat@1.2.6",
    "twemoji": "@iconify-json/twemoji@1.2.5",
    "openmoji": "@iconify-json/openmoji@1.2.29",
    "emojione": "@iconify-json/emojione@1.2.3",
    "emojione-v1": "@iconify-json/emojione-v1@1.2.3",
    "streamline-emojis": "@iconify-json/streamline-emojis@1.2.4",
    "emojibase": "emojibase-data@17.0.0",
}
SHA512 = {
    "noto": "DQiuXENbun41ch+XPSV55H9FaWKpHTyz46YIKtSaKYD4fIDDzL1tR6H4np/T38jfrTAeI3rcKF0mqHYeZVAuaw==",
    "noto-v1": "/DsVMius69Q0fRS53z7QK1TROSuar606jiIx+laXtdsYGMXpf6LtHBx6CGfoo3UHHb/XpBsw+1L1x3eyPqMuVA==",
    "fxemoji": "UAasRaxzFUKfIGSmLwnoarsssA4LX0VLLuEmplIqM6ZNQqIQRtav8tZ4H1neTlBreXuMQyAifr5jP4kn78DpiQ==",
    "fluent-emoji-flat": "RY47RgPb47fYUiyrA64sIOL0+UU02s29sXpNBbIQRBUlPlfNFTKUmZDERGuxDs/7yNGWqQYvuaSYM1M4fRXlUw==",
    "twemoji": "uKpuIEV0v6K5BW3Mjdyl+XKFVAbbcPxAgifKvEMtZoUZB5+YiY5zaMm2uNNCxyXzAWU9yNLlj41WU6/mvgALsw==",
    "openmoji": "vXdhkqcXVSO6suy+m9LbcUM3OdVyuNOtpV8/als/WqfkQIRxevL5Geb/g+6GH/Qwnq1OqksEmaDGTCmZ5nFKJQ==",
    "emojione": "T9+T3HIbJNLKKsmxYKlaYhvnHYkz/HNYTV7SHCXVZPfeUi4FqskY70YeN8yYAZT8cCv7w5vJxS4Q1m8zb9CMMg==",
    "emojione-v1": "UjI2VQEXVtGlPBvQuxEizro7QCgBcJDOYwKUupquvvZ8UV4xOlvm45IU82JYWegiAWLerY79gFLMZ26U6Ms+ww==",
    "streamline-emojis": "iNr9T9XuZVTyQPJO8ZlLxBzPkpi7qMl+z1l0C31vpEMqhPMelth3n7CeWQYtixdetDPdI81yeG4ROqjWpYJE6A==",
    "emojibase": "Yvgb5AWoHViHV/gq1qr5ZAarcBip+B27/ZLRsUJkbgAEaLlZ/fof9g882LTpmEpyhBNEC0m2SEmItljHsTygjA==",
}
STYLES = tuple(name for name in REGISTRY_NAMES if name != "emojibase")
PERMISSIVE = {"Apache-2.0", "MIT"}


@dataclass(frozen=True)
class Drawing:
    """One picture of a style, with what the package says about it."""

    style: str
    icon: str  # the package's name of it
    svg: str
    hexcode: str | None  # code points, lower case, where the package tells
    category: str


@dataclass(frozen=True)
class Style:
    name: str
    license: str
    author: str
    origin: str
    drawings: tuple[Drawing, ...]


def fetch(name: str, folder: Path) -> Path:
    """The package's file in `folder`, downloaded with `npm pack` unless it is there already."""
    package, _, version = REGISTRY_NAMES[name].rpartition("@")
    path = folder / f"{package.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", REGISTRY_NAMES[name]]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    found = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if found != SHA512[name]:
        raise SystemExit(f"{path}: sha512 is {found}, expected {SHA512[name]}: delete the file and try again")
    return path


def read_json(package: Path, member: str) -> Any:
    with tarfile.open(package) as archive:
        stream = archive.extractfile(f"package/{member}")
        assert stream is not None
        return json.load(stream)


def load_style(name: str, folder: Path) -> Style:
    """All visible drawings of a style. Aliases are left out: they show the same picture again."""
    package = fetch(name, folder)
    icons, info = read_json(package, "icons.json"), read_json(package, "info.json")
    categories = {
        icon: category
        for category, members in read_json(package, "metadata.json").get("categories", {}).items()
        for icon in members
    }
    hexcodes = {icon: hexcode for hexcode, icon in read_json(package, "chars.json").items()}
    drawings = tuple(
        Drawing(name, icon, svg(icons, body), hexcodes.get(icon), categories.get(icon, ""))
        for icon, body in sorted(icons["icons"].items())
        if not body.get("hidden")
    )
    return Style(name, info["license"]["spdx"], info["author"]["name"], info["author"]["url"], drawings)


def has_skin_tone(drawing: Drawing) -> bool:
    """Packages with code points tell by them (fluent writes only `-medium-dark` in names), others by name."""
    if drawing.hexcode is not None:
        return re.search(r"1f3f[b-f]", drawing.hexcode) is not None
    return "skin-tone" in drawing.icon


def svg(icons: dict[str, Any], icon: dict[str, Any]) -> str:
    """The drawing in a square that holds all of it, in the middle."""
    width = icon.get("width", icons.get("width", 16))
    height = icon.get("height", icons.get("height", 16))
    side = max(width, height)
    left = icon.get("left", icons.get("left", 0)) - (side - width) / 2
    top = icon.get("top", icons.get("top", 0)) - (side - height) / 2
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{left} {top} {side} {side}" width="{side}" height="{side}">{icon["body"]}</svg>'
    )


def render(drawing: Drawing, pixels: int) -> Image.Image:
    """RGB on white, `pixels` wide and high."""
    import resvg_py  # noqa: PLC0415 (only where something is drawn)

    data = resvg_py.svg_to_bytes(
        svg_string=drawing.svg, width=pixels, height=pixels, background="#ffffff", skip_system_fonts=True
    )
    image = Image.open(io.BytesIO(bytes(data))).convert("RGB")
    assert image.size == (pixels, pixels), (drawing.icon, image.size)
    return image


def rendered(drawings: Iterator[Drawing], pixels: int) -> Iterator[tuple[Drawing, Image.Image]]:
    """Drawings with their pictures; those that come out in one colour (white on white) are left out."""
    for drawing in drawings:
        image = render(drawing, pixels)
        if any(low != high for low, high in image.getextrema()):
            yield drawing, image
