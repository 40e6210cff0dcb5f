"""`isogclr report` on a run of one direction (pictures without captions), alone and beside one of two."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from isogclr import demo_data
from isogclr.cli import main
from support.browser import open_page
from support.report_runs import make_run
from support.shard_writing import write_shard

SAMPLES = 96
PANEL_PIXELS = 920  # 4.6 inches at 200 dpi


def emoji_shard(path: Path, *, captions: bool) -> Path:
    """The first emoji of the package, with or without their captions."""
    members = []
    with tarfile.open(demo_data.FOLDER / "train-000.tar") as archive:
        for member in archive.getmembers()[: 3 * SAMPLES]:
            stream = archive.extractfile(member)
            assert stream is not None
            if captions or member.name.endswith(".webp"):
                members.append((member.name, stream.read()))
    return write_shard(path, members)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the runs `one` (of images alone) and `two` (of images and texts)."""
    folder = tmp_path_factory.mktemp("directions")
    bare = str(emoji_shard(folder / "data" / "bare.tar", captions=False))
    pairs = str(emoji_shard(folder / "data" / "pairs.tar", captions=True))
    make_run(folder / "one", data=bare, test_data=bare, epochs=2, batch=32, directions=("image",))
    make_run(folder / "two", data=pairs, test_data=pairs, epochs=2, batch=32)
    return folder


def report(output: Path, *arguments: str) -> str:
    assert main(["report", *arguments, "--output", str(output)]) == 0
    return (output / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def alone(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("alone")
    report(output, str(runs / "one"))
    return output


def words(page: str) -> str:
    """What a reader sees, with the descriptions of figures."""
    page = re.sub(r"<(script|style)>.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*?(?:aria-label=\"([^\"]*)\"[^>]*)?>", r" \1 ", page).split())


def columns(path: Path) -> dict[str, list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    return {name: [line[place] for line in lines] for place, name in enumerate(header)}


def figures(page: str) -> set[str]:
    return set(re.findall(r'href="figures/(\w+)\.png"', page))


def test_one_direction_has_its_report(alone: Path) -> None:
    page = (alone / "report.html").read_text(encoding="utf-8")
    overview = {"loss", "final_temperatures", "temperature_curves", "epochs", "health"}
    assert figures(page) == overview | {"semantics_neighbours", "semantics_map"}
    for section in ("gallery", "semantics", "negatives", "samples", "health", "configuration"):
        assert f'<section id="{section}">' in page
    seen = words(page)
    assert "What could not be shown" not in seen
    assert f"All {SAMPLES} visited samples were read. {SAMPLES} were embedded" in seen
    assert "Images with the smallest temperatures" in seen
    assert "Its image against other images" in seen
    assert "Search keys" in seen


def test_one_direction_says_nothing_of_texts(alone: Path) -> None:
    seen = words((alone / "report.html").read_text(encoding="utf-8"))
    assert re.findall(r".{20}\b(?:texts?|captions?|both)\b.{20}", seen, flags=re.IGNORECASE) == []
    for path in (alone / "data").glob("*.csv"):
        found = columns(path)
        assert not [name for name in found if re.search("text|caption|word", name)], path.name
        assert set(found.get("side", ["image"])) == {"image"}, path.name


def test_one_direction_is_one_panel(alone: Path) -> None:
    for name in ("final_temperatures", "temperature_curves", "epochs", "semantics_neighbours"):
        with Image.open(alone / "figures" / f"{name}.png") as image:
            assert image.width == PANEL_PIXELS, name
    page = (alone / "report.html").read_text(encoding="utf-8")
    assert page.count('<svg class="map"') == 1


def test_a_sample_without_caption_has_no_problem(alone: Path) -> None:
    samples = columns(alone / "data" / "samples.csv")
    assert len(samples["row"]) == SAMPLES
    assert set(samples["problem"]) == {""}
    assert all(float(value) > 0 for value in samples["image_temperature"])


def test_the_page_of_one_direction_in_a_real_browser(alone: Path, tmp_path: Path) -> None:
    with open_page(alone / "report.html", tmp_path) as browser:
        assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []
        shown = (
            "return Array.from(document.querySelectorAll('#sample-table tbody tr:not([hidden])'), "
            "row => Array.from(row.cells, cell => cell.innerText))"
        )
        rows: list[list[str]] = browser.execute_script(shown)
        heads = browser.execute_script("return document.querySelectorAll('#sample-table th').length")
        assert {len(row) for row in rows} == {heads}
        temperatures = [float(row[1]) for row in rows]
        assert temperatures == sorted(temperatures, reverse=True)
        key = rows[7][-1].split()[-1]
        browser.find_element("id", "search").send_keys(key)
        assert any(row == rows[7] for row in browser.execute_script(shown))
        point = (
            "const dot = document.querySelector('.map circle');"
            "dot.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));"
            "return [document.getElementById('s' + dot.dataset.row).cells[1].innerText, "
            "document.getElementById('map-sample').innerText]"
        )
        temperature, text = browser.execute_script(point)
        assert text.split("\n")[-1] == f"image τ {temperature}"


@pytest.mark.parametrize("detailed", ["one", "two"])
def test_runs_of_different_directions(runs: Path, tmp_path: Path, detailed: str) -> None:
    """Each is shown with its own directions, whichever's samples are on the page."""
    page = report(tmp_path, str(runs / "one"), str(runs / "two"), "--detail", detailed)
    sides = {("one", "image"), ("two", "image"), ("two", "text")}
    for name in ("final_temperatures", "temperature_curves"):
        found = columns(tmp_path / "data" / f"{name}.csv")
        assert set(zip(found["run"], found["side"], strict=True)) == sides, name
        with Image.open(tmp_path / "figures" / f"{name}.png") as image:
            assert image.width == 2 * PANEL_PIXELS, name
    with Image.open(tmp_path / "figures" / "epochs.png") as image:
        assert image.width == PANEL_PIXELS
    assert set(columns(tmp_path / "data" / "recall.csv")["run"]) == {"two"}
    assert ("text_temperature" in columns(tmp_path / "data" / "samples.csv")) == (detailed == "two")
    assert ("Texts with the largest temperatures" in page) == (detailed == "two")
    assert "What could not be shown" not in page
    assert re.search(r"text τ, mean ± sd</th><td>–</td><td>0\.", page) is not None  # in the table of the stores


@pytest.fixture
def copy(runs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(runs / "one", tmp_path / "copy"))


def change_config(run: Path, **changes: Any) -> None:
    config = {**json.loads((run / "config.json").read_text()), **changes}
    kept = {name: value for name, value in config.items() if value is not None}
    (run / "config.json").write_text(json.dumps(kept), encoding="utf-8")


@pytest.fixture(scope="module")
def captions_alone(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run whose one direction is text, over samples that have no pictures any more."""
    folder = tmp_path_factory.mktemp("texts")
    pairs = str(emoji_shard(folder / "data" / "pairs.tar", captions=True))
    run = make_run(folder / "run", data=pairs, test_data=pairs, epochs=1, batch=32, directions=("text",))
    members = []
    with tarfile.open(pairs) as archive:
        for member in archive.getmembers():
            stream = archive.extractfile(member)
            assert stream is not None
            if member.name.endswith(".txt"):
                members.append((member.name, stream.read()))
    Path(pairs).unlink()
    write_shard(Path(pairs), members)
    report(folder / "out", str(run))
    return folder / "out"


def test_captions_alone_have_their_report(captions_alone: Path) -> None:
    page = (captions_alone / "report.html").read_text(encoding="utf-8")
    seen = words(page)
    assert "What could not be shown" not in seen
    assert f"All {SAMPLES} visited samples were read. {SAMPLES} were embedded" in seen
    assert "Texts with the smallest temperatures" in seen
    assert "Its text against other texts" in seen
    assert set(columns(captions_alone / "data" / "samples.csv")["problem"]) == {""}
    heads = page[page.index('<table id="sample-table">') : page.index("<tbody>", page.index('id="sample-table"'))]
    assert re.findall(r'data-sort="(\w+)"', heads) == ["caption", "text", "visits", "neighbours", "words", "row"]


def test_captions_alone_say_nothing_of_pictures(captions_alone: Path) -> None:
    seen = words((captions_alone / "report.html").read_text(encoding="utf-8"))
    assert re.findall(r".{20}\b(?:images?|pictures?|both)\b.{20}", seen, flags=re.IGNORECASE) == []
    for path in (captions_alone / "data").glob("*.csv"):
        assert not [name for name in columns(path) if re.search("image|picture", name)], path.name


def test_captions_alone_in_a_real_browser(captions_alone: Path, tmp_path: Path) -> None:
    with open_page(captions_alone / "report.html", tmp_path) as browser:
        assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []
        point = (
            "const dot = document.querySelector('.map circle');"
            "dot.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));"
            "return [document.getElementById('s' + dot.dataset.row).cells[0].innerText, "
            "document.getElementById('map-sample').innerText]"
        )
        caption, text = browser.execute_script(point)
        assert text.startswith(caption)
        assert browser.execute_script("return document.querySelectorAll('#map-sample .thumb').length") == 0


def test_directions_from_the_store(copy: Path, tmp_path: Path) -> None:
    change_config(copy, directions=None)
    seen = words(report(tmp_path / "out", str(copy), "--no-embeddings"))
    assert "Images with the largest temperatures" in seen
    assert "Texts with" not in seen


def test_directions_from_the_log(copy: Path, tmp_path: Path) -> None:
    change_config(copy, directions=None)
    shutil.rmtree(copy / "checkpoints" / "generations")
    report(tmp_path / "out", str(copy))
    assert set(columns(tmp_path / "out" / "data" / "temperature_curves.csv")["side"]) == {"image"}


def test_one_direction_without_index(copy: Path, tmp_path: Path) -> None:
    shutil.rmtree(copy / "index")
    change_config(copy, index=None)
    seen = words(report(tmp_path / "out", str(copy)))
    assert "No shard index: samples have row numbers, but no pictures; name it with --index." in seen
    assert re.search("caption", seen, flags=re.IGNORECASE) is None
    assert re.search(r"τ 0\.\d+ row \d+", seen) is not None


def test_one_direction_over_samples_with_captions(runs: Path, copy: Path, tmp_path: Path) -> None:
    """Captions that are there are shown, though nothing was trained on them."""
    pairs = runs / "data" / "pairs.tar"
    seen = words(report(tmp_path / "out", str(copy), "--shards", str(shutil.copy(pairs, tmp_path / "bare.tar"))))
    assert "Temperature and words of the caption" in seen
    assert "Texts with" not in seen
    samples = columns(tmp_path / "out" / "data" / "samples.csv")
    assert all(samples["caption"])
    assert "text_temperature" not in samples
