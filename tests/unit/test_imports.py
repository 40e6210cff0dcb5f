"""The arrows between the parts: who may import what."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
PARAMS = tuple(f"training/params/{name}.py" for name in ("__init__", "flags", "refusals", "values"))


def imports(path: Path) -> set[str]:
    """Modules that a file imports anywhere, type-checking blocks included."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def files(*patterns: str) -> list[Path]:
    return sorted({path for pattern in patterns for path in SOURCE.glob(pattern)})


def offenders(module: str, paths: list[Path], allowed: tuple[str, ...] = ()) -> list[str]:
    return [
        str(path.relative_to(SOURCE))
        for path in paths
        if str(path.relative_to(SOURCE)) not in allowed
        and any(name == module or name.startswith(f"{module}.") for name in imports(path))
    ]


@pytest.mark.parametrize(
    ("module", "where", "allowed"),
    [
        ("training", ["isogclr/**/*.py"], ()),
        ("open_clip_train", ["**/*.py"], ("training/open_clip_bridge.py",)),
        ("torch.distributed", ["**/*.py"], ("isogclr/distributed.py",)),
        ("argparse", ["**/*.py"], ("isogclr/cli.py", *PARAMS, "training/open_clip_bridge.py")),
        (
            "torch",
            ["isogclr/state/**/*.py", "isogclr/report/**/*.py", "isogclr/durable.py", "isogclr/errors.py"],
            (),
        ),
        ("isogclr", ["isogclr/objective.py"], ()),
        ("numpy", ["isogclr/objective.py", "isogclr/losses/**/*.py"], ()),
        ("pickle", ["**/*.py"], ()),
    ],
)
def test_arrows(module: str, where: list[str], allowed: tuple[str, ...]) -> None:
    paths = files(*where)
    assert paths
    assert offenders(module, paths, allowed) == []


def test_the_check_finds_what_is_there() -> None:
    assert offenders("torch", files("isogclr/losses/kernel.py")) == ["isogclr/losses/kernel.py"]
    assert offenders("isogclr.errors", files("isogclr/cli.py")) == ["isogclr/cli.py"]


def test_the_package_imports_without_torch() -> None:
    code = "import sys, isogclr, isogclr.cli, isogclr.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_public_names() -> None:
    code = "from isogclr import ISogCLRLoss; import isogclr; [getattr(isogclr, name) for name in isogclr.__all__]"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    import isogclr  # noqa: PLC0415

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = isogclr.nothing
