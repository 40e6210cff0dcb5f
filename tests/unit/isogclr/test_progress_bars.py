"""A bar on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from isogclr import progress_bars
from isogclr.cli import main
from isogclr.demo_data import TRAIN_DATA
from isogclr.progress_bars import BarLines, bars_of_others, progress_bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in its only element: tests turn it."""
    now = [0.0]
    monkeypatch.setattr(BarLines.__init__, "__defaults__", (progress_bars.LINE_SECONDS, lambda: now[0]))
    return now


def work(bar: Any, clock: list[float], seconds: int) -> None:
    """Ten drawn updates a second."""
    for _ in range(10 * seconds):
        clock[0] += 0.1
        bar.update()
        bar.refresh()


def test_a_log_gets_a_line_every_ten_seconds_and_the_last(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar(total=350, desc="working") as bar:
        work(bar, clock, seconds=35)
    lines = sys.stderr.getvalue().split("\n")
    assert lines.pop() == ""
    assert [line.split("%")[0].replace(" ", "") for line in lines] == [
        *("working:29", "working:57", "working:86", "working:100")
    ]
    assert "\r" not in sys.stderr.getvalue()


def test_a_short_bar_is_one_line(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar(total=20) as bar:
        work(bar, clock, seconds=2)
    assert sys.stderr.getvalue().count("\n") == 1
    assert "20/20" in sys.stderr.getvalue()


def test_a_terminal_gets_the_bar_itself(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_bar(total=350) as bar:
        work(bar, clock, seconds=35)
    assert sys.stderr.getvalue().count("\r") >= 350


@pytest.mark.parametrize(("quiet", "lines"), [(False, 4), (True, 0)])
def test_bars_of_others_do_the_same(
    quiet: bool, lines: int, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    from tqdm import tqdm  # noqa: PLC0415

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with bars_of_others(quiet):
        with tqdm(total=350) as bar:
            work(bar, clock, seconds=35)
        with progress_bar(total=1) as inner:  # is not filtered twice
            inner.update()
        print("a warning", file=sys.stderr)
    text = sys.stderr.getvalue()
    assert text.splitlines()[-1] == "a warning"
    assert text.endswith("\n")
    assert text.count("it/s]") == lines + (not quiet)
    assert isinstance(sys.stderr, io.StringIO)


def test_index_build_writes_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of the commands that show progress; `test_imports.py` holds that all do it here."""
    assert main(["index", "build", str(tmp_path / "index"), TRAIN_DATA, "--workers", "1"]) == 0
    shown = capsys.readouterr().err
    assert "\r" not in shown
    assert [line for line in shown.splitlines() if line.startswith("reading headers: 100%")] == shown.splitlines()
