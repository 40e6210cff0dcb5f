"""Where the live state goes: the first local folder, found by the first rank of each node."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from isogclr.distributed import Messages, Ranks
from isogclr.errors import TrainingError
from isogclr.state import filesystem
from support.gloo import run_ranks
from training.ranks.node import Node
from training.store.placement import StateFolder, choose_state_folder

ONE = Node(number=0, count=1, first_rank=0, is_first_rank=True)


class Machine:
    """Folders of one machine, and a list of mounts that says which of them other machines hold too."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self._shared: list[Path] = []
        self._mounts = folder / "mountinfo"
        patch.setattr(filesystem, "_MOUNTS", self._mounts)
        for variable, name in (("SLURM_TMPDIR", "slurm"), ("TMPDIR", "tmp")):
            patch.setenv(variable, str(self.make(name)))
        patch.setattr(tempfile, "tempdir", None)  # it is looked up once per process
        self.share()

    def make(self, name: str) -> Path:
        path = self._folder / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def share(self, *paths: Path) -> None:
        self._shared += paths
        lines = ["1 0 8:1 / / rw - ext4 /dev/sda rw", *(f"2 1 0:9 / {one} rw - nfs4 x rw" for one in self._shared)]
        self._mounts.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def choose(run: Path, given: Path | None = None) -> StateFolder:
    return choose_state_folder(given, run, Messages(Ranks()), ONE)


class TestOrder:
    def test_the_run_itself_if_it_is_local(self, machine: Machine) -> None:
        run = machine.make("logs/run")
        assert choose(run) == StateFolder(run / "state", is_scratch=False)

    def test_then_slurm_then_tmp_then_shared_memory(self, machine: Machine) -> None:
        run = machine.make("logs/run")
        places = [machine.make("slurm"), machine.make("tmp"), Path("/dev/shm")]
        hidden = run
        for place in places:
            machine.share(hidden)
            found = choose(run)
            assert found.is_scratch
            assert found.path.parent == place / f"isogclr-{os.getuid()}"
            assert found.path.name.startswith("run-")
            hidden = place

    def test_what_is_not_there_is_passed_over(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        run = machine.make("logs/run")
        machine.share(run)
        monkeypatch.setenv("SLURM_TMPDIR", str(machine.make("slurm") / "nowhere"))
        assert choose(run).path.is_relative_to(machine.make("tmp"))
        monkeypatch.delenv("SLURM_TMPDIR")
        assert choose(run).path.is_relative_to(machine.make("tmp"))

    def test_one_that_was_given_comes_first_and_alone(self, machine: Machine) -> None:
        run, given = machine.make("logs/run"), machine.make("given")
        assert choose(run, given) == StateFolder(given, is_scratch=False)
        machine.share(given)
        with pytest.raises(TrainingError, match=rf"on a network file system: {given} \(nfs4\); expected a local"):
            choose(run, given)

    def test_a_relative_one_is_made_absolute(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(machine.make("here"))
        assert choose(Path("logs/run"), Path("state")).path == machine.make("here") / "state"

    def test_all_are_named_if_none_is_local(self, machine: Machine) -> None:
        run = machine.make("logs/run")
        machine.share(run, machine.make("slurm"), machine.make("tmp"), Path("/dev/shm"))
        with pytest.raises(TrainingError, match="--isogclr-state-dir") as caught:
            choose(run)
        said = str(caught.value)
        places = [said.index(f"{one}/") for one in (run, machine.make("slurm"), machine.make("tmp"), "/dev/shm")]
        assert places == sorted(places)
        assert said.count("(nfs4)") == 4
        assert said.startswith("node 0 (")


class TestScratchName:
    def test_runs_of_one_name_do_not_meet(self, machine: Machine) -> None:
        runs = [machine.make(f"{place}/run") for place in ("a", "b")]
        machine.share(*runs)
        one, other = (choose(run).path for run in runs)
        assert one != other
        assert one.parent == other.parent
        assert choose(runs[0]).path == one  # a resumed run finds its own again

    def test_a_relative_run_is_the_absolute_one(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        run = machine.make("logs/run")
        machine.share(run)
        monkeypatch.chdir(machine.make("logs"))
        assert choose(Path("run")).path == choose(run).path

    def test_a_long_name_is_cut(self, machine: Machine) -> None:
        """A file name has 255 bytes at most."""
        runs = [machine.make(f"logs/{'long' * 50}{ending}") for ending in "ab"]
        machine.share(*runs)
        names = [choose(run).path.name for run in runs]
        assert max(map(len, names)) <= 113
        assert len(set(names)) == 2


def on_rank(folder: str, is_shared: bool) -> tuple[str, bool] | str:
    """Two ranks of one node, each with a TMPDIR of its own, as launchers may give them."""
    messages = Messages.of(Ranks())
    rank = messages.ranks.rank
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(Path(folder) / f"rank-{rank}", patch)
        run = Path(folder) / "logs" / "run"
        machine.share(run)
        if is_shared:
            machine.share(machine.make("slurm"), machine.make("tmp"), Path("/dev/shm"))
        try:
            found = choose_state_folder(None, run, messages, Node(0, 1, 0, rank == 0))
        except TrainingError as error:
            return str(error)
    return str(found.path), found.is_scratch


class TestRanks:
    def test_the_first_rank_of_a_node_decides(self, tmp_path: Path) -> None:
        one, other = run_ranks(2, on_rank, str(tmp_path), False)
        assert one == other
        path, is_scratch = one
        assert Path(path).is_relative_to(tmp_path / "rank-0" / "slurm")
        assert is_scratch

    def test_all_refuse_together(self, tmp_path: Path) -> None:
        one, other = run_ranks(2, on_rank, str(tmp_path), True)
        assert one == other
        assert one.count("found the state store on a network file system") == 1
