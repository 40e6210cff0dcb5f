"""Does a wheel hold all files of the sources? `python scripts/package_files.py SOURCES WHEEL`"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path


def main(sources: Path, wheel: Path) -> None:
    files = (path.relative_to(sources) for path in sources.rglob("*") if path.is_file())
    expected = {str(file) for file in files if not file.parts[0].endswith(".egg-info")}  # left by the build
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    if found != expected:
        sys.exit(f"{wheel.name}: missing {sorted(expected - found)}, foreign {sorted(found - expected)}")
    print(f"{wheel.name} holds all {len(found)} files of the sources")
    print(
        "\n".join(line for line in metadata.split("\n\n")[0].splitlines() if not line.startswith("Requires-Dist"))
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
