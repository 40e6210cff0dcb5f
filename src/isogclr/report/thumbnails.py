"""Pictures of the report: decoded with care, made small, encoded anew. No byte of a shard goes into the page."""

from __future__ import annotations

import base64
import io
import warnings
from dataclasses import dataclass

from PIL import Image

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
_MAXIMUM_PIXELS = 100_000_000
THUMBNAIL_PIXELS = 72


@dataclass(frozen=True)
class Thumbnail:
    """A small picture, ready for the page."""

    address: str  # data:
    width: int
    height: int


def decode(data: bytes) -> Image.Image:
    """RGB, transparency on white; ValueError, with a reason that can be shown, for what is no sound picture."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata; what matters raises
            image: Image.Image = Image.open(io.BytesIO(data), formats=_FORMATS)
            if image.width * image.height > _MAXIMUM_PIXELS:
                raise ValueError(f"{image.width} × {image.height} pixels are too many")
            image.load()
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                layer = image.convert("RGBA")
                image = Image.new("RGBA", layer.size, "white")
                image.alpha_composite(layer)
            return image.convert("RGB")
    except ValueError:
        raise
    except Exception as error:  # Pillow raises whatever its decoders meet
        raise ValueError(f"{type(error).__name__}: {error}"[:200]) from error


def thumbnail(image: Image.Image, pixels: int = THUMBNAIL_PIXELS, quality: int = 80) -> Thumbnail:
    """Fits into a square of `pixels`; never enlarged."""
    small = image.copy()
    small.thumbnail((pixels, pixels))
    buffer = io.BytesIO()
    small.save(buffer, format="WEBP", quality=quality, method=4)
    return Thumbnail(
        f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}", small.width, small.height
    )
