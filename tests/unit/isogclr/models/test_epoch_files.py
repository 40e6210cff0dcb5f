"""The newest `epoch_N.pt` is the one with the largest number."""

from __future__ import annotations

from pathlib import Path

from isogclr.models.epoch_files import epoch_file_name, newest_epoch_file


def test_newest(tmp_path: Path) -> None:
    assert newest_epoch_file(tmp_path / "not_there") is None
    for name in ("epoch_latest.pt", "epoch_99.pt.partial", "epoch_1e3.pt", "my_epoch_77.pt"):
        (tmp_path / name).touch()
    assert newest_epoch_file(tmp_path) is None
    for epoch in (9, 10, 2):
        (tmp_path / epoch_file_name(epoch)).touch()
    assert newest_epoch_file(tmp_path) == tmp_path / "epoch_10.pt"
