"""The command itself."""

from __future__ import annotations

from importlib import metadata

import pytest

from isogclr.cli import main


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"isogclr {metadata.version('isogclr')}\n"
