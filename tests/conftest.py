"""Several workers run the tests (pytest-xdist): a file stays on one, because its tests share runs made for it."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

# How long one example takes says nothing on a machine that is shared.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")


class ByFile(LoadScopeScheduling):
    """Whole files to workers. All files of tests/slurm share one cluster, and so one worker.

    xdist's own `loadgroup` renames tests by their group, which has no effect with pytest 9.2: every worker made the
    runs that a file shares for itself.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::", 1)[0]
        return "tests/slurm" if path.startswith("tests/slurm/") else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)
