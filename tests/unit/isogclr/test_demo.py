"""The demo's trainings run side by side and end together."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from isogclr import demo
from isogclr.errors import TrainingError

WAIT = (
    "import pathlib, signal, sys, time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"  # as a training that has committed
    "pathlib.Path(sys.argv[1]).touch()\n"
    "time.sleep(60)\n"
)
FAIL = (
    "import pathlib, sys, time\n"
    "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
    "print('no space left'); sys.exit(1)\n"
)


def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **sources: str) -> None:
    """Other programs in the place of the trainings; both know one file."""

    def command_line(loss: str, flags: Sequence[str], options: demo.Options) -> list[str]:
        return [sys.executable, "-c", sources[loss], str(tmp_path / "started")]

    monkeypatch.setattr(demo, "command_line", command_line)


@pytest.mark.parametrize(("isogclr", "clip", "guilty"), [(WAIT, FAIL, "clip"), (FAIL, WAIT, "isogclr")])
def test_if_one_fails_the_other_is_ended_and_the_right_one_named(
    isogclr: str, clip: str, guilty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(monkeypatch, tmp_path, isogclr=isogclr, clip=clip)
    started = []
    monkeypatch.setattr(demo.subprocess, "Popen", _recording(started))
    with pytest.raises(
        TrainingError, match=rf"--loss {guilty} ended with code 1; .*{guilty}.txt ends with:\nno space"
    ):
        demo.train_all(demo.Options(tmp_path / "demo", epochs=1, seed=0), say=print)
    assert sorted(process.returncode for process in started) == [1, 75]


def _recording(started: list) -> type:
    class Recording(demo.subprocess.Popen):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    return Recording


def test_a_log_is_told_how_far_both_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs(monkeypatch, tmp_path, isogclr="", clip="")
    for loss, epoch, recall in (("isogclr", 1.5, 0.125), ("clip", 0.5, None)):
        records = [{"kind": "train", "epoch": 0.25}, {"kind": "train", "epoch": epoch}]
        if recall is not None:
            records.append({"kind": "val", "image_to_text_R@10": recall})
        folder = tmp_path / "demo" / loss
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    runs = demo.train_all(demo.Options(tmp_path / "demo", epochs=2, seed=0), say=print)
    assert runs == [tmp_path / "demo" / "isogclr", tmp_path / "demo" / "clip"]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("training  50% |")
    assert line.endswith("R@10: isogclr 12.5 %")
