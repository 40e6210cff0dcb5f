"""Two workers run the tests (pytest-xdist): a file stays on one, because its tests share runs made for it."""

from __future__ import annotations

import hypothesis
import pytest

# How long one example takes says nothing on a machine that is shared.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All files of tests/slurm share one cluster, and so one worker."""
    for item in items:
        folder = item.path.parent.name
        item.add_marker(pytest.mark.xdist_group("slurm" if folder == "slurm" else item.path.name))
