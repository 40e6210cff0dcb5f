"""Bad data, foreign indexes and damaged checkpoints: a clear error ends all ranks soon, its cause printed once."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch

from support.micro_run import arguments, run, start, write_csv, write_model
from support.run_state import assert_same_end, last_commit
from support.shard_writing import write_noise_shards

SECONDS = 40  # within which all ranks must have ended


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("model"))


def assert_refused(line: list[str], folder: Path, words: str, ranks: int = 2) -> str:
    """All ranks end with code 1, and one of them says these words, once, without a traceback."""
    job = start(line, folder, ranks=ranks)
    codes = job.wait(SECONDS)
    assert codes == [1] * ranks, job.text
    assert job.text.count(words) == 1, job.text
    assert "Traceback" not in job.text
    assert job.text.count("| ERROR |") + job.text.count("ERROR:root") == 1, job.text
    return job.text


def write_samples(path: Path, samples: int, files: dict[str, bytes]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number in range(samples):
            for ending, data in files.items():
                member = tarfile.TarInfo(f"{number:04d}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return str(path)


def no_shards(folder: Path) -> dict[str, Any]:
    return {"train_data": str(folder / "shard-{000..003}.tar")}


def empty_shards(folder: Path) -> dict[str, Any]:
    for number in range(2):
        write_samples(folder / f"{number}.tar", 0, {})
    return {"train_data": str(folder / "{0..1}.tar")}


def too_few_shards(folder: Path) -> dict[str, Any]:
    return {"train_data": write_noise_shards(folder, [16] * 3), "workers": 2}


def too_many_samples(folder: Path) -> dict[str, Any]:
    return {"train_data": write_noise_shards(folder, [16] * 2), "train_num_samples": 1000}


def no_captions(folder: Path) -> dict[str, Any]:
    for number in range(2):
        write_samples(folder / f"{number}.tar", 16, {"png": b"", "caption": b"a dog"})
    return {"train_data": str(folder / "{0..1}.tar")}


def corrupt_images(folder: Path) -> dict[str, Any]:
    for number in range(2):
        write_samples(folder / f"{number}.tar", 16, {"jpg": b"\xff\xd8\xff no image", "txt": b"a dog"})
    return {"train_data": str(folder / "{0..1}.tar"), "workers": 1}


def missing_images(folder: Path) -> dict[str, Any]:
    table = write_csv(folder, 32)
    for image in folder.glob("*.png"):
        image.unlink()
    return {"train_data": table}


def wrong_column(folder: Path) -> dict[str, Any]:
    return {"train_data": write_csv(folder, 32), "csv_caption_key": "caption"}


def no_validation_shards(folder: Path) -> dict[str, Any]:
    return {"train_data": write_noise_shards(folder, [16] * 2), "val_data": str(folder / "validation-{0..3}.tar")}


def no_validation_table(folder: Path) -> dict[str, Any]:
    return {"train_data": write_csv(folder, 32), "val_data": str(folder / "validation.csv")}


def no_validation_sample(folder: Path) -> dict[str, Any]:
    validation = write_samples(folder / "validation.tar", 8, {"png": b""})
    return {"train_data": write_noise_shards(folder, [16] * 2), "val_data": validation}


BAD_DATA = {
    no_shards: "shard-000.tar does not exist",
    empty_shards: "the 2 shards of the training data hold no sample",
    too_few_shards: "--train-data names 3 shards for 2 ranks of 2 data workers",
    too_many_samples: "--train-num-samples is 1,000, and the data has 32 samples",
    no_captions: "none of 16 samples has a caption and an image; found the extensions caption, png",
    corrupt_images: "all 16 images that a data worker has read failed to decode",
    missing_images: "images that a data worker has read failed to decode",
    wrong_column: "it has no column 'caption', only 'filepath', 'title'",
    no_validation_shards: "--val-data: 4 of 4 do not exist, the first is",
    no_validation_table: "--val-data: 1 of 1 do not exist, the first is",
    no_validation_sample: "validation.tar has given no sample",
}


@pytest.mark.slow
@pytest.mark.parametrize("make", BAD_DATA, ids=lambda make: make.__name__)
def test_bad_data(make: Any, model: str, tmp_path: Path) -> None:
    flags = make(tmp_path / "data")
    data = flags.pop("train_data")
    line = arguments(model, data, tmp_path / "logs", "bad", loss="isogclr", isogclr_rho=1.0, **flags)
    text = assert_refused(line, tmp_path, BAD_DATA[make])
    is_late = make is no_validation_sample  # its shards are there; what is in them nobody has looked at
    assert ("Train Epoch" in text) == is_late


@pytest.fixture(scope="module")
def base(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with runs of two losses, that have ended, and their data."""
    folder = tmp_path_factory.mktemp("base")
    data = write_noise_shards(folder / "data", [16] * 2)
    write_noise_shards(folder / "other", [16] * 2, seed=1, prefix="other")
    for loss, flags in (("isogclr", {"isogclr_rho": 1.0}), ("clip", {})):
        line = arguments(model, data, folder / "logs", loss, loss=loss, epochs=3, save_every_n_steps=3, **flags)
        run(line, folder)
    return folder


class Copy:
    """A copy of one of these runs, to be spoiled, and the command that resumes it."""

    def __init__(self, base: Path, folder: Path, model: str, loss: str = "isogclr") -> None:
        self.path = folder / "logs" / loss
        shutil.copytree(base / "logs" / loss, self.path)
        self.whole = base / "logs" / loss
        for generation in self.generations[:2]:  # the last epoch is still to come
            shutil.rmtree(generation)
        self._line = (model, str(base / "data" / "shard-{000..001}.tar"), folder / "logs", loss)

    def line(self, **changes: Any) -> list[str]:
        flags = {"loss": self.path.name, "epochs": 3, "save_every_n_steps": 3, "resume": "latest", **changes}
        if flags["loss"] == "isogclr":
            flags["isogclr_rho"] = 1.0
        model, data, logs, name = self._line
        return arguments(model, flags.pop("data", data), logs, flags.pop("name", name), **flags)

    @property
    def generations(self) -> list[Path]:
        """Newest first."""
        return sorted((self.path / "checkpoints" / "generations").glob("generation-*"), reverse=True)


@pytest.fixture
def copy(base: Path, tmp_path: Path, model: str) -> Copy:
    return Copy(base, tmp_path, model)


def test_index_of_another_data_set(base: Path, copy: Copy, tmp_path: Path) -> None:
    other = str(base / "other" / "other-{000..001}.tar")
    assert_refused(copy.line(data=other), tmp_path, "is the index of another data set")
    line = copy.line(data=other, name="new", index=base / "logs" / "isogclr" / "index", resume=None)
    assert_refused(line, tmp_path, "is the index of another data set")


def test_state_of_another_data_set(base: Path, copy: Copy, tmp_path: Path, model: str) -> None:
    """The generation of a run on other shards: its rows are other samples."""
    data = str(base / "other" / "other-{000..001}.tar")
    run(copy.line(data=data, name="other", resume=None, epochs=1), tmp_path)
    shutil.rmtree(copy.path / "checkpoints")
    shutil.copytree(tmp_path / "logs" / "other" / "checkpoints", copy.path / "checkpoints")
    assert_refused(copy.line(), tmp_path, "state.snapshot: found a store of index", ranks=1)


@pytest.mark.parametrize(
    ("before", "flags", "words"),
    [
        ("isogclr", {"loss": "sogclr"}, "found a commit of --loss isogclr, expected one of --loss sogclr"),
        ("clip", {"loss": "cyclip"}, "found a commit of --loss clip, expected one of --loss cyclip"),
        ("isogclr", {"isogclr_temperature_optimizer": "adam"}, "it was written with another loss or other options"),
    ],
)
def test_another_loss(
    before: str, flags: dict[str, Any], words: str, base: Path, model: str, tmp_path: Path
) -> None:
    assert_refused(Copy(base, tmp_path, model, before).line(**flags), tmp_path, words)


def test_name_that_is_taken(copy: Copy, tmp_path: Path) -> None:
    assert_refused(copy.line(resume=None), tmp_path, "found the log of an earlier run, expected a new name")


@pytest.mark.parametrize("name", ["checkpoint.pt", "training.json", "state.snapshot", "manifest.json"])
def test_newest_commit_cut_short(name: str, copy: Copy, tmp_path: Path) -> None:
    """The one before is resumed, and the run ends as if nothing had happened."""
    cut_short(copy.generations[0] / name)
    job = run(copy.line(), tmp_path)
    assert "passed over a damaged generation" in job.text
    assert_same_end(copy.path, copy.whole)


@pytest.mark.parametrize("name", ["checkpoint.pt", "training.json", "state.snapshot"])
def test_newest_commit_altered(name: str, copy: Copy, tmp_path: Path) -> None:
    """One bit. It is an error, and whoever takes the damaged generation away can go on."""
    path = copy.generations[0] / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert_refused(copy.line(), tmp_path, "use another generation, and check the disk", ranks=2)
    shutil.rmtree(copy.generations[0])
    run(copy.line(), tmp_path)
    assert_same_end(copy.path, copy.whole)


def test_no_commit_is_whole(copy: Copy, tmp_path: Path) -> None:
    """A run never starts over by itself."""
    for generation in copy.generations:
        cut_short(generation / "checkpoint.pt")
    assert_refused(copy.line(), tmp_path, "expected one that is whole", ranks=1)


def test_file_of_an_epoch_cut_short(copy: Copy, tmp_path: Path) -> None:
    path = copy.path / "checkpoints" / "epoch_1.pt"
    before = last_commit(copy.path).rows.tobytes()
    cut_short(path)
    assert_refused(copy.line(name="new", resume=path), tmp_path, "epoch_1.pt: found a file that torch can not load")
    assert last_commit(copy.path).rows.tobytes() == before
    path = copy.path / "checkpoints" / "epoch_2.pt"
    run(copy.line(name="newer", resume=path), tmp_path)


def test_file_of_an_epoch_that_somebody_changed(copy: Copy, tmp_path: Path) -> None:
    """Its generation would be resumed, and what was changed would be ignored."""
    path = copy.path / "checkpoints" / "epoch_1.pt"
    content = torch.load(path, weights_only=True)
    for weights in content["state_dict"].values():
        weights.zero_()
    torch.save(content, path)
    words = "epoch_1.pt: found another content than what was committed with it"
    assert_refused(copy.line(name="new", resume=path), tmp_path, words)
    run(copy.line(name="newer", resume=copy.generations[0]), tmp_path)


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def test_a_crash_in_an_evaluation_loses_no_epoch(tmp_path: Path) -> None:
    """What was trained is committed before, and is not trained again."""
    data, model = write_noise_shards(tmp_path / "data", [16]), write_model(tmp_path / "model")
    validation = write_noise_shards(tmp_path / "val", [8])
    line = arguments(model, data, tmp_path / "logs", "a", val_data=validation, epochs=1)
    run(line, tmp_path, expected=1, module="saboteurs.crashing_evaluation")
    job = run([*line, "--resume", "latest"], tmp_path)
    assert "100.0% of the epoch done" in job.text
    assert "Train Epoch" not in job.text
    assert "image_to_text_R@1" in job.text
    assert (tmp_path / "logs" / "a" / "checkpoints" / "epoch_1.pt").is_file()
