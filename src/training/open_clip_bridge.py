"""What we take from `open_clip_train`. The only importer of it."""

from __future__ import annotations

from open_clip_train.data import expand_urls
from open_clip_train.data import tarfile_to_samples_nothrow as tarfile_to_samples

__all__ = ["expand_urls", "tarfile_to_samples"]
