"""The arrows between the parts: who may import what."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
PARAMS = tuple(
    f"training/params/{name}.py"
    for name in ("__init__", "flags", "mistakes", "refusals", "values", "unimodal_flags", "unimodal_line")
)


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
        (
            "argparse",
            ["**/*.py"],
            ("isogclr/cli.py", "isogclr/cli_evaluation.py", *PARAMS, "training/open_clip_bridge.py"),
        ),
        (
            "torch",
            ["isogclr/state/**/*.py", "isogclr/report/**/*.py", "isogclr/durable.py", "isogclr/errors.py"],
            (),
        ),
        ("isogclr", ["isogclr/objective.py"], ()),
        ("numpy", ["isogclr/objective.py", "isogclr/losses/**/*.py"], ()),
        ("pickle", ["**/*.py"], ()),
        ("tqdm", ["**/*.py"], ("isogclr/progress_bars.py",)),
    ],
)
def test_arrows(module: str, where: list[str], allowed: tuple[str, ...]) -> None:
    paths = files(*where)
    assert paths
    assert offenders(module, paths, allowed) == []


# Which part of `training` may import which: main → run → assembly → epochs → steps → (data, store) → isogclr.
# Everybody may know the foundation; `params` makes settings, and only programs ask it.
_FOUNDATION = {"settings", "randomness", "signals", "full_disk", "features", "ranks", "open_clip_bridge"}
ARROWS = {
    "main": {"run", "open_clip_program", "signals"},
    "unimodal": {"run", "views", "signals"},
    "run": {"assembly", "program", "commits", "folder", "store", "steps.metric_log", "divergence", "epochs"},
    "assembly": {"program", "epochs", "steps", "data", "store", "commits", "folder", "divergence"},
    "epochs": {"program", "steps", "data", "store", "commits", "divergence"},
    "divergence": {"steps", "commits"},
    "open_clip_program": {"program", "params", "data", "store", "evaluation", "folder", "loss", "model"},
    "views": {"program", "params", "data", "store", "folder", "loss", "steps.metric_log"},
    "program": {"data", "folder", "steps.metric_log"},
    "commits": {"steps.progress", "store", "data.position"},
    "evaluation": {"model", "steps.metric_log"},
    "steps": {"data", "store"},
    "params": {"loss"},
    "data": set(),
    "store": set(),
    "model": set(),
    "loss": set(),
    "folder": set(),
    "open_clip_bridge": {"full_disk"},
    "features": set(),
    "settings": set(),
    "randomness": set(),
    "signals": set(),
    "full_disk": set(),
    "ranks": {"signals", "full_disk"},
}
_BELOW_THE_FOUNDATION = ("open_clip_bridge", "features", "settings", "randomness", "signals", "full_disk", "ranks")


def parts_of_training() -> dict[str, list[Path]]:
    """Files by module or package directly below src/training."""
    found: dict[str, list[Path]] = {}
    for path in files("training/**/*.py"):
        part = path.relative_to(SOURCE / "training").parts[0].removesuffix(".py")
        if part != "__init__":
            found.setdefault(part, []).append(path)
    return found


def test_training_calls_downwards() -> None:
    parts = parts_of_training()
    assert set(parts) == set(ARROWS), "a new part of `training` needs its arrows here"
    wrong = []
    for part, paths in parts.items():
        allowed = ARROWS[part] | {part} | (set() if part in _BELOW_THE_FOUNDATION else _FOUNDATION)
        for path in paths:
            for name in imports(path):
                if not name.startswith("training."):
                    continue
                below = name.removeprefix("training.")
                is_package = below in parts and not (SOURCE / "training" / f"{below}.py").exists()
                if is_package and any(one.startswith(f"{below}.") for one in allowed):
                    continue  # `from training.steps import progress`: the second name is looked at by itself
                if not any(below == one or below.startswith(f"{one}.") for one in allowed):
                    wrong.append(f"{path.relative_to(SOURCE)} imports {name}")
    assert wrong == []


def test_arrows_of_training_have_no_cycle() -> None:
    """A part is read after those that it needs."""
    open_parts = {part: {one.partition(".")[0] for one in arrows} for part, arrows in ARROWS.items()}
    # These two look at one module of a part above them: `Progress` is a value, the log of metrics a place to write.
    open_parts["commits"].discard("steps")
    open_parts["evaluation"].discard("steps")
    while open_parts:
        leaves = [part for part, arrows in open_parts.items() if not arrows & set(open_parts)]
        assert leaves, f"a cycle among {sorted(open_parts)}"
        for part in leaves:
            del open_parts[part]


def test_every_package_has_a_reading_order() -> None:
    """The docstring of a package names every module and package in it."""
    wrong = []
    for init in files("**/__init__.py"):
        text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
        siblings = [path.name for path in init.parent.glob("*.py") if path.name != "__init__.py"]
        siblings += [f"{path.parent.name}/" for path in init.parent.glob("*/__init__.py")]
        wrong += [f"{init.relative_to(SOURCE)}: {name}" for name in siblings if not re.search(rf"\b{name}", text)]
    assert wrong == []


def test_no_two_modules_share_a_name() -> None:
    names = [path.name for path in files("**/*.py") if path.name != "__init__.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


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
