"""`isogclr state info|export|verify`, as a user types it."""

from __future__ import annotations

import csv
import subprocess
import sys
import tracemalloc
import types

import numpy as np
import pytest

from isogclr.cli import main
from isogclr.errors import IsogclrError
from isogclr.state.export import export_state
from isogclr.state.generations import STORE_SNAPSHOT, latest, write_generation
from isogclr.state.layout import BLOCK_ROWS
from support.store_cases import FINGERPRINT, ISOGCLR, MEMORY, STATELESS, values_of

ROWS = 3 * BLOCK_ROWS
VISITED = [0, 7, 2 * BLOCK_ROWS + 1]


@pytest.fixture
def root(tmp_path):
    """One generation; three rows visited in epochs 0, 1 and 2."""
    root = tmp_path / "generations"
    with MEMORY.create(tmp_path, rows=ROWS) as store:
        values = ISOGCLR.zeros(3)
        values["image_temperature"] = [0.01, 0.02, 0.03]
        values["text_temperature"] = 0.5
        values["visits"] = [1, 2, 3]
        values["last_epoch"] = [1, 2, 3]
        store.write(VISITED, values, 12)
        with write_generation(root, step=12, info={"epoch": 2}) as folder:
            (folder / "model.pt").write_bytes(b"model")
            store.commit(folder / STORE_SNAPSHOT)
    return root


class FakeIndex:
    """What `ShardIndex` offers; the last key is not UTF-8, as surrogates."""

    rows = ROWS

    @classmethod
    def load(cls, path):
        return cls()

    def rows_at(self, fingerprint):
        assert fingerprint == FINGERPRINT
        return self.rows

    def locate(self, rows):
        return [("shard,1.tar", "key\udcff" if row > 7 else f"key {row}") for row in rows]


@pytest.fixture
def index(monkeypatch):
    module = types.ModuleType("isogclr.shard_index.index")
    module.ShardIndex = FakeIndex
    monkeypatch.setitem(sys.modules, "isogclr.shard_index.index", module)
    return FakeIndex


def test_info(root, capsys):
    assert main(["state", "info", str(root)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line[0] != "r")
    assert lines["generation"].startswith("1 ")
    assert lines["step"] == "12"
    assert lines["visits"] == "6"
    assert lines["image_temperature"] == "mean 0.02, from 0.01 to 0.03"
    assert main(["state", "info", str(latest(root).path / STORE_SNAPSHOT)]) == 0
    out = capsys.readouterr().out
    assert "generation " not in out
    assert f"rows visited         {len(VISITED)}" in out


def test_info_of_an_empty_store(tmp_path, capsys):
    with MEMORY.create(tmp_path, schema=STATELESS) as store:
        store.commit(tmp_path / "snapshot")
    assert main(["state", "info", str(tmp_path / "snapshot")]) == 0
    assert "last epoch           none" in capsys.readouterr().out


def test_verify(root, capsys):
    snapshot = latest(root).path / STORE_SNAPSHOT
    for path in (root, latest(root).path, snapshot):
        assert main(["state", "verify", str(path)]) == 0
        assert "whole" in capsys.readouterr().out
    with snapshot.open("r+b") as file:
        file.seek(9000)
        file.write(b"x")
    for path in (root, latest(root).path, snapshot):
        assert main(["state", "verify", str(path)]) == 1
        assert "rows 0 to 2047" in capsys.readouterr().err


def test_export_to_csv_with_an_index(root, tmp_path, index, capsys):
    table = tmp_path / "table.csv"
    assert main(["state", "export", str(root), str(table), "--index", "anywhere"]) == 0
    assert "wrote 3 rows" in capsys.readouterr().out
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["row"] for line in lines] == [str(row) for row in VISITED]
    assert [line["key"] for line in lines] == ["key 0", "key 7", "key\\xff"]
    assert {line["shard"] for line in lines} == {"shard,1.tar"}
    assert [line["image_temperature"] for line in lines] == ["0.01", "0.02", "0.03"]
    assert [line["visits"] for line in lines] == ["1", "2", "3"]
    assert [line["last_epoch"] for line in lines] == ["0", "1", "2"]


def test_export_without_an_index_has_row_numbers_only(root, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("old")
    assert main(["state", "export", str(root), str(table)]) == 0
    header = table.read_text().splitlines()[0].split(",")
    assert header == ["row", *ISOGCLR.names]


def test_export_to_parquet(root, tmp_path, index):
    parquet = pytest.importorskip("pyarrow.parquet")
    table = tmp_path / "table.parquet"
    assert main(["state", "export", str(root), str(table), "--index", "anywhere"]) == 0
    found = parquet.read_table(table)
    assert found.column_names == ["row", "shard", "key", *ISOGCLR.names]
    assert found["row"].to_pylist() == VISITED
    assert found["last_epoch"].to_pylist() == [0, 1, 2]
    np.testing.assert_array_equal(found["image_temperature"].to_numpy(), np.float32([0.01, 0.02, 0.03]))
    assert found["key"].to_pylist()[2] == "key\\xff"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["generations", "table.parquet"]


def test_parquet_without_pyarrow_says_what_to_install(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["state", "export", str(root), str(tmp_path / "table.parquet")]) == 1
    assert "pip install pyarrow" in capsys.readouterr().err


def _never_had(self, fingerprint):
    raise IsogclrError(f"never had {fingerprint}")


def test_export_with_another_index_is_refused(root, tmp_path, index, monkeypatch, capsys):
    monkeypatch.setattr(index, "rows", ROWS - 1)
    arguments = ["state", "export", str(root), str(tmp_path / "table.csv"), "--index", "anywhere"]
    assert main(arguments) == 1
    assert "use the index of the run" in capsys.readouterr().err
    monkeypatch.setattr(index, "rows_at", _never_had)
    assert main(arguments) == 1
    assert "never had" in capsys.readouterr().err
    assert not (tmp_path / "table.csv").exists()


def test_what_can_not_be_read_or_written_is_one_line(root, tmp_path, capsys):
    (tmp_path / "folder.csv").mkdir()
    for arguments, message in (
        (["info", str(tmp_path / "missing")], "found neither"),
        (["export", str(root), str(tmp_path / "folder.csv")], "could not write the table"),
        (["verify", __file__], "check the path"),
    ):
        assert main(["state", *arguments]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        assert message in lines[0]


def test_an_export_to_no_known_kind_of_file(root, tmp_path, capsys):
    for name in ("table.xlsx", "table"):
        assert main(["state", "export", str(root), str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.rstrip().endswith("expected a file that ends in .csv or .parquet")


def test_an_export_into_a_folder_that_is_not_there(root, tmp_path, capsys):
    assert main(["state", "export", str(root), str(tmp_path / "no" / "table.csv")]) == 2
    assert capsys.readouterr().err == (
        f"isogclr: error: {tmp_path}/no/table.csv: there is no folder {tmp_path}/no: create it, or name another\n"
    )


def test_no_key_is_a_formula(root, tmp_path, index, monkeypatch):
    """A spreadsheet would run it; numbers are left alone."""
    monkeypatch.setattr(index, "locate", lambda self, rows: [("@a.tar", "=1+1" if row else "-7") for row in rows])
    assert main(["state", "export", str(root), str(tmp_path / "table.csv"), "--index", "x"]) == 0
    with (tmp_path / "table.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [(line["shard"], line["key"]) for line in lines] == [("'@a.tar", "-7")] + [("'@a.tar", "'=1+1")] * 2


def test_the_memory_of_an_export_does_not_grow_with_the_store(tmp_path, monkeypatch):
    """Peaks of two exports, one of ten times as many rows, read a block at a time."""
    monkeypatch.setattr("isogclr.state.blocks._CHUNK_BLOCKS", 1)
    peaks = []
    for blocks in (4, 40):
        rows, snapshot = blocks * BLOCK_ROWS, tmp_path / f"snapshot-{blocks}"
        with MEMORY.create(tmp_path, rows=rows) as store:
            store.write(np.arange(rows), values_of(ISOGCLR, np.arange(rows) + 1), 1)
            store.commit(snapshot)
        tracemalloc.start()
        assert export_state(snapshot, tmp_path / "table.csv") == rows
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


def test_verify_of_all_generations_sees_a_damaged_newest_one(root, capsys):
    with write_generation(root, step=13) as folder:
        (folder / "model.pt").write_bytes(b"another model")
    assert main(["state", "verify", str(root)]) == 0
    assert capsys.readouterr().out.count("whole") == 2
    (root / "generation-00000002" / "model.pt").write_bytes(b"short")
    assert main(["state", "verify", str(root)]) == 1
    assert "generation-00000002/model.pt: found 5 bytes, expected 13" in capsys.readouterr().err


def test_a_long_key_does_not_widen_every_other(root, tmp_path, index, monkeypatch):
    """As text arrays of numpy, all keys would take the room of the longest, four bytes a character."""
    long_key = "k" * 2_000_000
    monkeypatch.setattr(
        FakeIndex, "locate", lambda self, rows: [("s.tar", long_key if row else "a") for row in rows]
    )
    tracemalloc.start()
    try:
        export_state(latest(root).path / STORE_SNAPSHOT, tmp_path / "table.csv", FakeIndex())
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_what_the_system_refuses_is_one_line(root, monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "somewhere")

    monkeypatch.setattr("isogclr.state.inspect.verify", refuse)
    assert main(["state", "verify", str(root)]) == 1
    assert capsys.readouterr().err == "isogclr: error: [Errno 13] Permission denied: 'somewhere'\n"


def test_a_reader_that_has_seen_enough_is_no_error_to_show(root):
    command = (
        f"{sys.executable} -c 'import sys; from isogclr.cli import main; sys.exit(main())' state info {root} | true"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "package"),
    [
        (["eval", "--checkpoint", "x.pt", "--data-root", "data"], "clip_benchmark"),
        (["export", "x.pt", "folder"], "safetensors"),
    ],
)
def test_commands_without_their_extra_name_it(arguments, package, monkeypatch, capsys):
    monkeypatch.setattr("isogclr.cli_evaluation.find_spec", lambda name: None if name == package else name)
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line == f"isogclr: error: found no {package}: `isogclr {arguments[0]}` needs `pip install 'isogclr[eval]'`"
    )
