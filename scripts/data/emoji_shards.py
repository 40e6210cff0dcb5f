"""Write samples as tar shards, the same bytes every time.

The shards are gzip-compressed inside: a tar file spends 512 bytes or more on every member's header and padding,
which is more than these pictures need. Python's `tarfile`, webdataset and GNU tar recognise that by themselves.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

_EPOCH = 0  # time of every member and of the compression


@dataclass(frozen=True)
class Sample:
    key: str
    image: Image.Image
    caption: str
    about: dict[str, str]

    def members(self, effort: int) -> list[tuple[str, bytes]]:
        about = json.dumps(self.about, ensure_ascii=False, sort_keys=True)
        return [
            (f"{self.key}.webp", encode(self.image, effort)),
            (f"{self.key}.txt", self.caption.encode()),
            (f"{self.key}.json", about.encode()),
        ]


def encode(image: Image.Image, effort: int) -> bytes:
    """Lossless WebP: the pixels of the drawing, in about half the bytes of PNG; effort 0 is fast, 6 small."""
    buffer = io.BytesIO()
    image.save(buffer, format="WEBP", lossless=True, quality=100 if effort == 6 else 20, method=effort, exact=True)
    return buffer.getvalue()


def write_shards(
    folder: Path, prefix: str, samples: Sequence[Sample], number: int, effort: int
) -> list[dict[str, object]]:
    """`number` shards as equal as can be; returns what the manifest says of them."""
    entries: list[dict[str, object]] = []
    for position in range(number):
        part = samples[len(samples) * position // number : len(samples) * (position + 1) // number]
        path = folder / f"{prefix}-{position:03d}.tar"
        path.write_bytes(_archive(part, effort))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        entries.append({"file": path.name, "samples": len(part), "sha256": digest})
    return entries


def _archive(samples: Sequence[Sample], effort: int) -> bytes:
    buffer = io.BytesIO()
    # no file name and no time in the gzip header; plain ustar headers without an owner
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=buffer, compresslevel=9, mtime=_EPOCH) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for sample in samples:
            for name, data in sample.members(effort):
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.mode = len(data), _EPOCH, 0o644
                archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
