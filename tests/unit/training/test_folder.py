"""The folder of a run: its name, what may be in it already, and what is written at the start."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from isogclr.distributed import Messages, Ranks
from isogclr.errors import TrainingError
from training import params
from training.folder import RunFolder, Start, configuration, copy_code, describe, open_folder, versions
from training.open_clip_bridge import Place
from training.settings import Settings

FIRST = Place(torch.device("cpu"), rank=0, local_rank=0, world_size=1)


@pytest.fixture(autouse=True)
def _logging_of_other_tests() -> Iterator[None]:
    """A run logs for the whole process: to its file, at its level, warnings too."""
    handlers, level, warn = list(logging.root.handlers), logging.root.level, warnings.showwarning
    levels = {name: logging.getLogger(name).level for name in logging.root.manager.loggerDict}
    yield
    logging.captureWarnings(False)
    warnings.showwarning = warn
    for handler in [one for one in logging.root.handlers if one not in handlers]:
        logging.root.removeHandler(handler)
        handler.close()
    logging.root.setLevel(level)
    for name in logging.root.manager.loggerDict:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def settings(logs: Path | None, name: str | None = "run", *argv: str, **run: Any) -> Settings:
    parsed = params.parse(["--train-data", "a.tar", "--lr", "0.001", *argv])[0]
    return dataclasses.replace(parsed, run=dataclasses.replace(parsed.run, logs=logs, name=name, **run))


def open_one(wanted: Settings, place: Place = FIRST) -> RunFolder:
    return open_folder(wanted, place, Messages(Ranks()))[0]


class TestOpening:
    def test_it_is_laid_out_as_open_clips(self, tmp_path: Path) -> None:
        folder = open_one(settings(tmp_path))
        assert folder == RunFolder("run", tmp_path / "run", tmp_path / "run")
        assert folder.checkpoints == tmp_path / "run" / "checkpoints"
        assert folder.checkpoints.is_dir()
        logging.info("Hello.")
        assert "Hello." in (tmp_path / "run" / "out.log").read_text(encoding="utf-8")

    def test_a_relative_folder_is_made_absolute(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert open_one(settings(Path("logs"))).path == tmp_path / "logs" / "run"

    def test_an_earlier_run_of_the_name_is_refused(self, tmp_path: Path) -> None:
        open_one(settings(tmp_path))
        with pytest.raises(TrainingError, match="found the log of an earlier run, expected a new name"):
            open_one(settings(tmp_path))
        with pytest.raises(TrainingError, match="--resume latest"):
            open_one(settings(tmp_path, resume="elsewhere.pt"))

    def test_unless_it_is_resumed(self, tmp_path: Path) -> None:
        first = open_one(settings(tmp_path))
        assert open_one(settings(tmp_path, resume="latest")) == first

    def test_a_folder_without_a_log_is_no_run(self, tmp_path: Path) -> None:
        """The launcher may have made it, for its own output."""
        (tmp_path / "run").mkdir()
        assert open_one(settings(tmp_path)).path == tmp_path / "run"

    @pytest.mark.parametrize("spoil", ["checkpoints", "out.log", "name"])
    def test_a_place_that_can_not_be_written(self, spoil: str, tmp_path: Path) -> None:
        """Also of those whom permissions do not stop."""
        name = "x" * 300 if spoil == "name" else "run"
        if spoil != "name":
            (tmp_path / "run").mkdir()
        if spoil == "checkpoints":
            (tmp_path / "run" / "checkpoints").touch()
        if spoil == "out.log":
            (tmp_path / "run" / "out.log").symlink_to("/proc/no-such-place")
        with pytest.raises(TrainingError, match=r"found no place for the run .* choose another --logs or --name"):
            open_one(settings(tmp_path, name))

    def test_a_log_per_node_is_named_by_rank(self, tmp_path: Path) -> None:
        place = Place(torch.device("cpu"), rank=4, local_rank=0, world_size=8)
        open_one(settings(tmp_path, log_local=True), place)
        assert (tmp_path / "run" / "out-4").exists()
        assert not (tmp_path / "run" / "out.log").exists()

    def test_other_ranks_write_nothing(self, tmp_path: Path) -> None:
        place = Place(torch.device("cpu"), rank=1, local_rank=1, world_size=2)
        for log_local in (False, True):
            assert open_one(settings(tmp_path, log_local=log_local), place).path == tmp_path / "run"
        assert list(tmp_path.iterdir()) == []

    def test_nothing_is_stored_without_logs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        left: list[tuple[Any, ...]] = []
        monkeypatch.setattr("atexit.register", lambda *call, **options: left.append(call))
        folder = open_one(settings(None))
        try:
            assert (folder.name, folder.path, folder.checkpoints) == ("run", None, None)
            assert folder.scratch.is_dir()
            assert [(function, Path(path)) for function, path in left] == [(shutil.rmtree, folder.scratch)]
        finally:
            shutil.rmtree(folder.scratch)

    def test_a_run_without_a_name_is_named_as_open_clip_names_it(self, tmp_path: Path) -> None:
        line = "--model hf-hub:some/ViT-B-32 --batch-size 32 --workers 3 --precision amp_bf16"
        name = open_one(settings(tmp_path, None, *line.split())).name
        expected = r"\d{4}_\d\d_\d\d-\d\d_\d\d_\d\d-model_hf-hub:some-ViT-B-32-lr_0\.001-b_32-j_3-p_amp_bf16"
        assert re.fullmatch(expected, name), name


class TestFailedStart:
    def start(self, tmp_path: Path, *, has_stepped: bool = False, **run: Any) -> tuple[Path, Start]:
        folder, start = open_folder(settings(tmp_path, **run), FIRST, Messages(Ranks()))
        start.has_stepped = lambda: has_stepped
        assert folder.path is not None
        return folder.path, start

    def test_its_name_is_free_again_and_its_log_can_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "slurm.out").touch()
        for number in (1, 2):
            path, start = self.start(tmp_path)
            (path / "index").mkdir()
            start.fail()
            logging.error("The cause.")
            kept = path / f"failed-start-{number}"
            assert {entry.name for entry in kept.iterdir()} == {"out.log", "checkpoints", "index"}
            assert "The cause." in (kept / "out.log").read_text(encoding="utf-8")
        assert {entry.name for entry in path.iterdir()} == {"slurm.out", "failed-start-1", "failed-start-2"}
        assert open_one(settings(tmp_path)).path == path

    def test_a_run_that_has_stepped_keeps_its_name(self, tmp_path: Path) -> None:
        path, start = self.start(tmp_path, has_stepped=True)
        start.fail()
        assert (path / "out.log").exists()
        with pytest.raises(TrainingError, match="expected a new name"):
            open_one(settings(tmp_path))

    def test_an_older_run_stays_as_it_is(self, tmp_path: Path) -> None:
        path, _ = self.start(tmp_path)
        (path / "checkpoints" / "epoch_1.pt").touch()
        _, again = self.start(tmp_path, resume="latest")
        again.fail()
        assert (path / "checkpoints" / "epoch_1.pt").exists()
        assert (path / "out.log").exists()


class TestDescription:
    def test_arguments_for_people_and_settings_for_programs(self, tmp_path: Path) -> None:
        folder = RunFolder("run", tmp_path, tmp_path)
        describe(folder, {"zeta": 1, "alpha": None}, {"path": tmp_path, "rows": 3})
        assert (tmp_path / "params.txt").read_text(encoding="utf-8") == "alpha: None\nzeta: 1\n"
        assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8")) == {
            "path": str(tmp_path),
            "rows": 3,
        }

    def test_nothing_is_written_where_nothing_is_stored(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO):
            describe(RunFolder("run", None, tmp_path), {"alpha": 1}, {})
        assert list(tmp_path.iterdir()) == []
        assert "  alpha: 1" in caplog.messages

    def test_the_configuration_is_plain_json(self, tmp_path: Path) -> None:
        wanted = settings(tmp_path, "run", "--batch-size", "32", "--loss", "isogclr", "--seed", "5")
        found = configuration(wanted, RunFolder("run", tmp_path, tmp_path), world_size=4, rows=7)
        assert json.loads(json.dumps(found)) == found
        expected = {"name": "run", "loss": "isogclr", "seed": 5, "batch_size": 32, "world_size": 4, "rows": 7}
        assert {name: found[name] for name in expected} == expected
        assert (found["train_data"], found["dataset_type"]) == ("a.tar", "webdataset")
        assert found["settings"]["run"]["logs"] == str(tmp_path)
        assert found["versions"] == versions()

    def test_a_run_that_only_evaluates_has_no_data(self, tmp_path: Path) -> None:
        wanted = dataclasses.replace(settings(tmp_path), data=None)
        found = configuration(wanted, RunFolder("run", tmp_path, tmp_path), world_size=1)
        assert {found[name] for name in ("train_data", "dataset_type", "batch_size", "workers")} == {None}

    def test_versions_of_what_a_result_depends_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = versions()
        assert found["torch"].split("+")[0] == torch.__version__.split("+")[0]
        assert {"python", "open_clip_torch", "numpy", "isogclr"} <= found.keys()
        monkeypatch.setattr("training.folder._PACKAGES", ("no-such-package",))
        assert versions()["no-such-package"] == "not installed"


class TestCode:
    def test_both_packages_without_the_demo_data(self, tmp_path: Path) -> None:
        copy_code(RunFolder("run", tmp_path, tmp_path), is_resumed=False)
        copied = {str(path.relative_to(tmp_path / "code")) for path in (tmp_path / "code").rglob("*")}
        assert {"training/folder.py", "isogclr/objective.py"} <= copied
        assert not [name for name in copied if name.endswith((".tar", ".pyc"))]

    def test_an_earlier_copy_stays(self, tmp_path: Path) -> None:
        (tmp_path / "code").mkdir()
        with pytest.raises(TrainingError, match="found an earlier copy of the code, expected none"):
            copy_code(RunFolder("run", tmp_path, tmp_path), is_resumed=False)
        copy_code(RunFolder("run", tmp_path, tmp_path), is_resumed=True)
        assert list((tmp_path / "code").iterdir()) == []
