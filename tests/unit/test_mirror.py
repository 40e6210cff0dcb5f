"""Tests are found where their subject is, and every module is the subject of one."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE, TESTS = REPOSITORY / "src", REPOSITORY / "tests"
UNIT = TESTS / "unit"

# Files below `unit` that are named after what they show, since more than one module of their folder is meant.
TOPICS = {
    "isogclr/losses/test_dual.py": "the fixed point of the loss, shown in docs/method.md",
    "isogclr/losses/test_known_mistakes.py": "mistakes of other implementations, one test each",
    "isogclr/report/test_semantics.py": "commonness, negatives and projection, on the same made-up features",
    "test_imports.py": "the arrows between all parts",
    "test_mirror.py": "this file",
    "test_package.py": "setup.py, CITATION.cff and the workflows",
}

# Modules that no test names, by the module that tests reach them through: bodies of commands, and inner parts.
REACHED_THROUGH = {
    "isogclr.cli": {
        "isogclr.cli_evaluation",
        "isogclr.evaluation.command",
        "isogclr.evaluation.download",
        "isogclr.evaluation.linear_command",
        "isogclr.evaluation.linear_data",
        "isogclr.evaluation.linear_measure",
        "isogclr.models.backbone_folder",
        "isogclr.models.model_folder",
        *(f"isogclr.report.{name}" for name in ("curves", "distributions", "make", "model_of_run")),
        *(f"isogclr.report.{name}" for name in ("page", "relations", "side_by_side", "summaries")),
        "isogclr.state.inspect",
    },
    "isogclr.evaluation.data_folders": {"isogclr.evaluation.native", "isogclr.evaluation.webdataset_copy"},
    "isogclr.evaluation.in_training": {
        "isogclr.evaluation.damage",
        "isogclr.evaluation.measure",
        "isogclr.models.encoder",
    },
    "isogclr.losses": {"isogclr.losses.open_clip_losses"},
    "isogclr.shard_index.build": {"isogclr.shard_index.plan", "isogclr.shard_index.saving"},
    "isogclr.shard_index.index": {"isogclr.shard_index.check"},
    "isogclr.state.store": {"isogclr.state.attach", "isogclr.state.live"},
    "training.params": {f"training.params.{name}" for name in ("mistakes", "refusals", "values")},
    "training.model": {"training.features"},
    "training.open_clip_program": {"training.program"},
    "training.run": {"training.assembly", "training.epochs", "training.steps.log_lines"},
}
LISTED = set().union(*REACHED_THROUGH.values())


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> set[str]:
    """All but packages that only hold others."""
    return {module_of(path) for path in SOURCE.rglob("*.py") if path.name != "__init__.py" or _has_code(path)}


def _has_code(path: Path) -> bool:
    kinds = (ast.FunctionDef, ast.ClassDef)
    return any(isinstance(node, kinds) for node in ast.parse(path.read_text(encoding="utf-8")).body)


@functools.cache
def imported_names(path: Path) -> set[str]:
    """Dotted names of modules, and of what is imported from them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def homes() -> dict[str, str]:
    """Names that a package hands on, and the module that each comes from."""
    found = {}
    for path in SOURCE.rglob("__init__.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(module_of(path)):
                found |= {f"{module_of(path)}.{alias.asname or alias.name}": node.module for alias in node.names}
    return found


@functools.cache
def modules_with_tests() -> set[str]:
    """Imported by name, or by a name that their package hands on; or with a file of tests that has their name."""
    names = set().union(*(imported_names(path) for path in TESTS.rglob("*.py")))
    handed_on = homes()
    while added := {f"{handed_on[name]}.{name.rpartition('.')[2]}" for name in names & handed_on.keys()} - names:
        names |= added | {name.rpartition(".")[0] for name in added}
    mirrored = (path.relative_to(UNIT).parent / path.stem.removeprefix("test_") for path in unit_tests())
    names |= {".".join(path.parts) for path in mirrored}
    return names & modules()


def reached_from(module: str) -> set[str]:
    """What a module imports, and what that imports, among our own."""
    paths = {module_of(path): path for path in SOURCE.rglob("*.py")}
    found, waiting = set(), [module]
    while waiting:
        new = imported_names(paths[waiting.pop()]) & paths.keys() - found
        found |= new
        waiting += new
    return found


def subject_folder(folder: Path) -> Path:
    """The folder that a folder of unit tests stands for."""
    place = folder.relative_to(UNIT)
    return REPOSITORY / place if place.parts[:1] == ("scripts",) else SOURCE / place


def unit_tests() -> list[Path]:
    return sorted(UNIT.rglob("test_*.py"))


def test_folders_are_those_of_the_sources() -> None:
    folders = {path.parent for path in unit_tests()}
    assert UNIT / "training" / "data" in folders
    assert [str(one.relative_to(UNIT)) for one in sorted(folders) if not subject_folder(one).is_dir()] == []


def test_files_are_named_after_a_module_of_that_folder() -> None:
    """Or after the folder itself; a word for the aspect may follow, as in test_build_faults.py."""
    strange = [str(path.relative_to(UNIT)) for path in unit_tests() if not _has_subject(path)]
    assert strange == sorted(TOPICS)


def _has_subject(path: Path) -> bool:
    folder, name = subject_folder(path.parent), path.stem.removeprefix("test_")
    subjects = {*(one.stem for one in folder.glob("*.py")), *(one.name for one in folder.glob("*/")), folder.name}
    return any(name == one or name.startswith(f"{one}_") for one in subjects)


def test_every_module_is_tested() -> None:
    """A module that is not: write a test for it. The list is for bodies of commands, and for parts of one other."""
    assert sorted(modules() - modules_with_tests() - LISTED) == []


def test_the_list_is_not_longer_than_it_must_be() -> None:
    assert sorted(LISTED - modules()) == []
    assert sorted(LISTED & modules_with_tests()) == []


@pytest.mark.parametrize("door", sorted(REACHED_THROUGH))
def test_what_is_listed_is_behind_a_module_with_tests(door: str) -> None:
    assert door in modules_with_tests()
    assert sorted(REACHED_THROUGH[door] - reached_from(door)) == []


@pytest.mark.parametrize(
    ("name", "is_tested"),
    [
        ("training.data.rest_of_epoch", True),  # imported by name
        ("isogclr.losses.cyclip", True),  # by `from isogclr.losses import CyCLIPLoss`
        ("isogclr.no_such_module", False),
    ],
)
def test_the_check_tells_them_apart(name: str, is_tested: bool) -> None:
    assert (name in modules_with_tests()) == is_tested
