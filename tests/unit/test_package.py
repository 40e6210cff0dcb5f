"""What a package index, a citation and a public CI are told is true here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import isogclr

REPOSITORY = Path(__file__).resolve().parents[2]
SETUP = (REPOSITORY / "setup.py").read_text(encoding="utf-8")
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_one_version() -> None:
    citation = load(REPOSITORY / "CITATION.cff")
    assert re.search(r'version="(.*)"', SETUP)[1] == isogclr.__version__ == str(citation["version"])
    assert {"cff-version", "message", "title", "authors", "license"} <= set(citation)
    assert citation["preferred-citation"]["year"] == 2023


def test_the_pythons_that_are_named_are_those_that_are_accepted_and_run() -> None:
    named = re.findall(r"Python :: (3\.\d+)", SETUP)
    first, past_last = re.search(r'python_requires=">=(3\.\d+),<(3\.\d+)"', SETUP).groups()
    accepted = [f"3.{minor}" for minor in range(int(first[2:]), int(past_last[2:]))]
    run = load(REPOSITORY / ".github" / "workflows" / "newest.yml")["jobs"]["newest"]["strategy"]["matrix"][
        "python"
    ]
    assert named == accepted == run


def test_the_oldest_versions_are_the_lower_ends_of_the_ranges() -> None:
    ranges = dict(re.findall(r'"([\w-]+)(?:\[training\])?>=([\d.]+)[,"]', SETUP))
    lines = (REPOSITORY / "scripts" / "oldest.txt").read_text(encoding="utf-8").split("# no range of ours")[0]
    oldest = dict(re.findall(r"^([\w-]+)==([\d.]+?)(?:\.\*)?$", lines, flags=re.MULTILINE))
    assert oldest == ranges


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_runs_what_there_is(path: Path) -> None:
    steps = [step["run"] for job in load(path)["jobs"].values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    commands = " ".join(steps)
    if ".ci/run" in commands:
        commands = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8")
    found = re.findall(r"\bmake ([a-z-]+)", commands)
    assert found
    assert set(found) <= set(targets)
