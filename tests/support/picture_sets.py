"""Small sets of pictures in the three layouts, written as their official tools and archives have them."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.uint8]


def random_pixels(count: int, seed: int = 0) -> Pixels:
    """[count, 3, 32, 32]."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


def picture(seed: int, size: tuple[int, int] = (8, 8)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def encoded(seed: int, size: tuple[int, int] = (8, 8), kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    picture(seed, size).save(buffer, format=kind)
    return buffer.getvalue()


def write_folders(root: Path, counts: Mapping[str, int], size: tuple[int, int] = (8, 8)) -> Path:
    """ROOT/CLASS/0.png …"""
    seed = 0
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            (root / name / f"{number:03d}.png").write_bytes(encoded(seed, size))
            seed += 1
    return root


def write_shards(root: Path, labels: Sequence[Sequence[int | None]], suffix: str = "png") -> str:
    """A shard for each list of labels; None leaves the `.cls` out. Returns the pattern of the shards."""
    root.mkdir(parents=True, exist_ok=True)
    seed = 0
    for number, own in enumerate(labels):
        with tarfile.open(root / f"{number:03d}.tar", "w") as archive:
            for place, label in enumerate(own):
                add(archive, f"{place:04d}.{suffix}", encoded(seed))
                if label is not None:
                    add(archive, f"{place:04d}.cls", str(label).encode())
                seed += 1
    return str(root / f"{{000..{len(labels) - 1:03d}}}.tar")


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


# The official archives were pickled by Python 2 with protocol 2: text and pixels are `str`, whose instructions
# today's `pickle` can read and not write. So they are written here, one by one.


def _text(text: str) -> bytes:
    return b"U" + bytes([len(text)]) + text.encode("latin-1")


def _number(value: int) -> bytes:
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def _list(items: Sequence[bytes]) -> bytes:
    return b"](" + b"".join(items) + b"e"


def _array(pixels: Pixels) -> bytes:
    """[n, 3072] of bytes, as Python 2 and numpy 1 wrote it."""
    shape = _number(len(pixels)) + _number(3072) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + _text("u1") + b"K\x00K\x01\x87R(K\x03" + _text("|") + b"NNN"
    dtype += b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    data = pixels.tobytes()
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text("b") + b"\x87R"
    return start + b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(data)) + data + b"tb"


def cifar_file(fields: Mapping[str, bytes]) -> bytes:
    """A dictionary of values that are pickled already."""
    return b"\x80\x02}q\x01(" + b"".join(_text(key) + value for key, value in fields.items()) + b"u."


def _batch(pixels: Pixels, labels: Mapping[str, Sequence[int]]) -> bytes:
    fields = {"batch_label": _text("training batch 1 of 5"), "data": _array(pixels)}
    fields |= {key: _list([_number(one) for one in own]) for key, own in labels.items()}
    names = [_text(f"picture_s_{number:06d}.png") for number in range(len(pixels))]
    return cifar_file({**fields, "filenames": _list(names)})


def _meta(key: str, names: Sequence[str]) -> bytes:
    return cifar_file({"num_cases_per_batch": _number(10_000), key: _list([_text(name) for name in names])})


def write_cifar10(root: Path, pixels: Pixels, labels: Sequence[int], test: int = 10) -> Path:
    """cifar-10-batches-py below `root`: five equal batches, and the first `test` pictures as the test part."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    each = len(pixels) // 5
    for number in range(5):
        own = slice(number * each, (number + 1) * each)
        (folder / f"data_batch_{number + 1}").write_bytes(_batch(pixels[own], {"labels": labels[own]}))
    (folder / "test_batch").write_bytes(_batch(pixels[:test], {"labels": labels[:test]}))
    (folder / "batches.meta").write_bytes(_meta("label_names", [f"class {number}" for number in range(10)]))
    (folder / "readme.html").write_text("<meta>")
    return folder


def write_cifar100(root: Path, pixels: Pixels, labels: Sequence[int]) -> Path:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for name in ("train", "test"):
        fields = {"coarse_labels": [label // 5 for label in labels], "fine_labels": list(labels)}
        (folder / name).write_bytes(_batch(pixels, fields))
    (folder / "meta").write_bytes(_meta("fine_label_names", [f"class {number}" for number in range(100)]))
    (folder / "file.txt~").write_bytes(b"")
    return folder
